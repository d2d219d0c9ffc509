package driver

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"
)

// ids are a uid and its group.
type ids struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// lookup finds a user's ids by name or number.
func lookup(name string) (ids, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if byID, e := user.LookupId(name); e == nil {
			u, err = byID, nil
		}
	}
	if err != nil {
		return ids{}, fmt.Errorf("look up user %q: %w", name, err)
	}
	n, errU := strconv.ParseUint(u.Uid, 10, 32)
	g, errG := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return ids{}, fmt.Errorf("look up user %q: %w", name, err)
	}
	return ids{uint32(n), uint32(g)}, nil
}

// parseSize reads a size as the host's configuration has it.
func parseSize(s string) (uint64, error) {
	units := []struct {
		suffix string
		bytes  uint64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || f < 0 || f*float64(u.bytes) > 1<<62 {
			break
		}
		return uint64(f * float64(u.bytes)), nil
	}
	return 0, fmt.Errorf("%q is no size", s)
}
