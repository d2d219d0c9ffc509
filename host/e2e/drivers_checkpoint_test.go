package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// checkpoints are the checkpoints on disk.
func (r *rig) checkpoints() (found []string) {
	_ = filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && filepath.Base(filepath.Dir(path)) == "checkpoints" {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// TestACellIsWrittenToDiskWhenTheHostIsStopped where the agent asks for it and
// the driver can, and comes back as it was; other cells stay alive.
func TestACellIsWrittenToDiskWhenTheHostIsStopped(t *testing.T) {
	r := driverRig(t, `checkpoint = "on-suspend"`, "")
	for _, place := range places { // what it knows is in its memory only
		r.dispatchTo(place, place, fmt.Sprintf(`n=0; while [ ! -e $PWD/%[1]s.go ]; do n=$((n+1)); echo $n > %[1]s.n; sleep 0.1; done
echo a >> %[1]s.a; [ $n -ge 5 ] || exit 1; echo b >> %[1]s.b; exit 7`, place))
	}
	for _, place := range places {
		r.until("it has counted", func() bool {
			n, _ := strconv.Atoi(strings.Join(r.lines(place+".n"), ""))
			return n >= 5
		})
		r.reaches(place, "running")
	}
	saved := func() bool { return len(r.vms()) == 0 && len(r.checkpoints()) == 1 }

	r.end(syscall.SIGTERM)
	if !saved() {
		t.Fatalf("with the host stopped there are VMs %v and checkpoints %v", r.vms(), r.checkpoints())
	}
	if got := r.containers(); len(got) != 1 {
		t.Errorf("with the host stopped there are containers %v", got)
	}
	r.start()
	for _, place := range places {
		r.sees(place, "mission.suspended", "mission.reconnected", "mission.resumed")
		r.wantOneCheckpoint(place)
	}
	r.until("nothing is left of the checkpoint", func() bool { return len(r.vms()) == 1 && len(r.checkpoints()) == 0 })

	// The host is killed while it writes.
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(deadline); len(r.checkpoints()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no checkpoint is written")
		}
	}
	_ = r.cmd.Process.Signal(syscall.SIGKILL)
	<-r.done
	r.until("the orchestrator has noticed the end", func() bool { return !r.listed() })
	r.start()
	for _, place := range places {
		write(t, filepath.Join(r.work, place+".go"), "", 0o644)
		if m := r.reaches(place, "done", "failed", "aborted"); m.ExitCode == nil || *m.ExitCode != 7 {
			t.Errorf("%s: state %s, exit code %v, error %q", place, m.State, m.ExitCode, m.Error)
		}
		if a, b := r.lines(place+".a"), r.lines(place+".b"); len(a) != 1 || len(b) != 1 {
			t.Errorf("%s: its side effects happened %d and %d times", place, len(a), len(b))
		}
		r.verify(place)
	}
	r.until("no checkpoint is left", func() bool { return len(r.checkpoints()) == 0 })
}

// wantOneCheckpoint says that a mission was suspended with an id and came back
// with the same one.
func (r *rig) wantOneCheckpoint(id string) {
	r.t.Helper()
	var ids []string
	for _, e := range r.orc.Events(id) {
		if e.Event != "mission.suspended" && e.Event != "mission.reconnected" {
			continue
		}
		var data struct {
			CheckpointID string `json:"checkpoint_id"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, data.CheckpointID)
	}
	if ids = slices.Compact(ids); len(ids) != 1 || !strings.HasPrefix(ids[0], "ckpt-") {
		r.t.Errorf("%s: checkpoints %v", id, ids)
	}
}
