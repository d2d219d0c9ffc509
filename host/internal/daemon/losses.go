package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/airlock-host/airlock/host/internal/store"
)

// trouble is what status says of the start.
type trouble struct {
	mu    sync.Mutex
	lines []string
}

func (t *trouble) add(lines ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, lines...)
}

func (t *trouble) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lines)
}

// findLosses says loudly when one half of what proves the journals is gone
// while the other half is there: the store, or the signed heads outside of it.
// The host starts all the same; what it means is in status until the next start.
func (h *host) findLosses() error {
	h.trouble.add(h.heads.Trouble()...)
	file := h.cfg.Governance.Head.File
	signed, err := h.heads.Any()
	if err != nil {
		return fmt.Errorf("look for signed heads: %w", err)
	}
	if h.store.Fresh() && signed {
		h.log.Error("the store is new, but there are signed heads of its tasks: the store was lost or data_dir is another one", "data_dir", h.cfg.DataDir, "heads", file)
		h.trouble.add(fmt.Sprintf("the store in %s is new, but %s holds signed heads of older tasks: the store was lost, or data_dir is another one. "+
			"Every mission of before is gone from this host. Stop it and put the store back, or, if a new beginning was meant, move the file of heads away", h.cfg.DataDir, file))
		return nil
	}
	if h.store.Fresh() {
		return nil
	}
	if err := h.findMissing(); err != nil || !h.heads.Fresh() && !h.heads.Emptied() {
		return err
	}
	gone := "was not there"
	if h.heads.Emptied() {
		gone = "has nothing in it"
	}
	rows, _, err := h.store.Missions(context.Background(), store.MissionFilter{Limit: 1})
	if err != nil {
		return fmt.Errorf("look for missions: %w", err)
	}
	if len(rows) > 0 {
		h.log.Error("the file of signed heads is gone or was emptied, but the store has missions: until they are signed anew nothing shows whether their journals were cut or rewritten", "heads", file)
		h.trouble.add(fmt.Sprintf("the file of signed heads %s %s, but the store has missions: nothing shows whether their journals were cut or rewritten before this start. "+
			"Stop the host and put the file back (with %s.ended), or export and verify what matters; tasks are signed anew as they go on", file, gone, file))
	}
	return nil
}

// findMissing says which tasks have a signed head outside of the store and are
// not in it: the store was put back from an older copy, or cut.
func (h *host) findMissing() error {
	var missing []string
	for _, task := range h.heads.Live() {
		_, err := h.store.Head(context.Background(), task)
		switch {
		case errors.Is(err, store.ErrNotFound):
			missing = append(missing, strconv.Quote(task))
		case err != nil:
			return fmt.Errorf("look for task %q: %w", task, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	n := len(missing)
	names := strings.Join(missing[:min(n, maxNamed)], ", ")
	h.log.Error("tasks with a signed head are not in the store: it was put back from an older copy, or cut", "tasks", names, "count", n)
	h.trouble.add(fmt.Sprintf("%d tasks have a signed head in %s and are not in the store (%s): it was put back from an older copy, or cut. "+
		"Stop the host and put the newer store back; what these tasks did is not known to this host", n, h.cfg.Governance.Head.File, names))
	return nil
}

// maxNamed is how many tasks are named where there may be many.
const maxNamed = 5
