package driver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/sdk/stage"
)

// TestTheAgentIsItsOwnStage: no other program runs before it, it has its options
// on its command line, and its program is offered on a read-only mount only.
func TestTheAgentIsItsOwnStage(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	c := r.create(r.spec("own"))
	pid := handleOf(t, c.GetRef()).Process.PID
	if line := readFile(t, procFile(pid, "cmdline")); !strings.HasPrefix(line, "airlock-cell\x00serve\x00--link-dir\x00") || !strings.Contains(line, stage.AgentArgument) {
		t.Errorf("its command line is %q", line)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(procFile(pid, "exe"), &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		t.Errorf("its program lies on a mount with the flags %x (%v)", fs.Flags, err)
	}
	if got := r.say(r.link(c), c, "s", "readlink \"$AIRLOCK_CELL\""); got != stage.CellAgent+"\n" {
		t.Errorf("the workload finds the program at %q", got)
	}
	r.destroy("own")
}

// TestAnAgentThatIsNoStageIsStartedToo: one from before agents could be.
func TestAnAgentThatIsNoStageIsStartedToo(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	b, err := os.ReadFile(agent.agent)
	if err != nil {
		t.Fatal(err)
	}
	if !stage.Knows(b) {
		t.Fatal("the agent does not show that it can be its own stage")
	}
	b = bytes.ReplaceAll(b, []byte(stage.AgentArgument), []byte(strings.Repeat("-", len(stage.AgentArgument))))
	older := filepath.Join(r.dir, "older-cell")
	if err := os.WriteFile(older, b, 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	spec := r.spec("older")
	spec.AgentBinary, spec.AgentSha256 = older, hex.EncodeToString(sum[:])
	c := r.create(spec)
	if line := readFile(t, procFile(handleOf(t, c.GetRef()).Process.PID, "cmdline")); !strings.Contains(line, "--link-dir") || strings.Contains(line, "stage") {
		t.Errorf("its command line is %q", line)
	}
	if got := r.say(r.link(c), c, "s", "echo yes"); got != "yes\n" {
		t.Errorf("it says %q", got)
	}
	r.destroy("older")
}

func TestWhatIsLookedForMayLieAnywhereInTheFile(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 1, 40, 63, 64, 100} {
		text := append(bytes.Repeat([]byte("x"), at), stage.AgentArgument...)
		text = append(text, bytes.Repeat([]byte("y"), 100)...)
		for _, part := range []int{1, 7, 64, len(text)} {
			var s search
			for rest := text; len(rest) > 0; rest = rest[min(part, len(rest)):] {
				if n, err := s.Write(rest[:min(part, len(rest))]); err != nil || n != min(part, len(rest)) {
					t.Fatal(n, err)
				}
			}
			if !s.found {
				t.Errorf("at %d, in parts of %d: not found", at, part)
			}
		}
	}
	var s search
	_, _ = s.Write([]byte(stage.AgentArgument[:10]))
	_, _ = s.Write([]byte("x" + stage.AgentArgument[10:]))
	if s.found {
		t.Error("found what is not there")
	}
}
