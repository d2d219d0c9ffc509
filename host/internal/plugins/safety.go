package plugins

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// safeFile refuses a file that somebody else could change, or whose directory
// somebody else could put another file into.
func safeFile(path string) *Fault {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return faultf(NotFound, "%v", err)
	}
	for _, p := range []string{real, filepath.Dir(real), filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil {
			return faultf(NotFound, "%v", err)
		}
		if fault := safeInfo(p, info, os.Geteuid(), os.Getegid()); fault != nil {
			return fault
		}
	}
	return nil
}

func safeInfo(path string, info fs.FileInfo, euid, egid int) *Fault {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return faultf(Unsafe, "nobody can tell who owns %s", path)
	}
	if stat.Uid != 0 && int(stat.Uid) != euid {
		return faultf(Unsafe, "%s belongs to uid %d, who could change it under the host (uid %d)", path, stat.Uid, euid).
			advise("chown it to %s", owner(euid))
	}
	others := info.Mode().Perm() & 0o022
	// With user-private groups (umask 002) the group is the user again.
	if euid != 0 && euid == egid && int(stat.Gid) == egid {
		others &= 0o002
	}
	if others != 0 {
		return faultf(Unsafe, "%s can be changed by others (mode %s)", path, info.Mode()).
			advise("chmod go-w it")
	}
	return nil
}

func owner(euid int) string {
	if euid == 0 {
		return "root"
	}
	return fmt.Sprintf("root or uid %d", euid)
}
