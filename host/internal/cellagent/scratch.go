package cellagent

import (
	"fmt"
	"os"
	"strings"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// scratchVar names the session's scratch directory in its environment.
const scratchVar = "AIRLOCK_TMP"

// scratchBase is where scratch directories are made. Their paths are short,
// since programs put unix sockets into them.
const scratchBase = "/tmp"

// makeScratch makes the session's scratch directory, for the workload alone. A
// cell may have no place for one; that matters only to a session that uses it.
func makeScratch(req *cellv1.Start, sp *spawn) (string, error) {
	dir, err := os.MkdirTemp(scratchBase, "al-")
	if err == nil && sp.otherUID() {
		err = os.Lchown(dir, int(sp.uid), int(sp.gid))
	}
	if err == nil {
		return dir, nil
	}
	if dir != "" {
		_ = os.Remove(dir)
	}
	for _, v := range req.GetEnv() {
		if strings.Contains(v, "${"+scratchVar+"}") {
			return "", fmt.Errorf("make a scratch directory: %w", err)
		}
	}
	return "", nil
}

// dropScratch removes the scratch directory, once nothing of the session runs.
func (s *session) dropScratch() {
	if s.scratch == "" {
		return
	}
	if err := os.RemoveAll(s.scratch); err != nil {
		s.agent.log.warn("cannot remove the session's scratch directory", "session", s.id, "error", err)
	}
}
