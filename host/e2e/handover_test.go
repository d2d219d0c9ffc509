package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// servers are the processes of the host's program below a process, that one too.
func (r *rig) servers() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		words := strings.Split(string(text), "\x00")
		if err != nil || len(words) < 4 || words[1] != "serve" || words[3] != r.conf {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		pids = append(pids, pid)
	}
	return pids
}

// replace puts another program at the path of the host's and asks it to be
// replaced.
func (r *rig) replace(at string, put func(path string)) {
	r.t.Helper()
	put(at + ".new")
	if err := os.Rename(at+".new", at); err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		r.t.Fatal(err)
	}
}

// ownProgram has the host run as a copy of its program, whose path it gives.
func (r *rig) ownProgram() string {
	r.t.Helper()
	mine := filepath.Join(r.dir, "airlock-host")
	copyProgram(r.t, program, mine)
	r.end(syscall.SIGTERM)
	r.startAs(mine)
	return mine
}

// insist dispatches a mission until the host has taken it, whatever becomes of the
// host meanwhile: the same mission id again.
func (r *rig) insist(id, objective string) {
	r.t.Helper()
	r.until(id+" is taken", func() bool {
		select {
		case <-r.done:
			return true // whoever has killed it goes on
		default:
		}
		req, _ := http.NewRequest(http.MethodPost, "http://localhost/api/v1/missions",
			strings.NewReader(fmt.Sprintf(`{"mission_id": %q, "objective": %q, "completion": "x"}`, id, objective)))
		req.Header.Set("Content-Type", "application/json")
		resp, err := r.api.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode/100 == 2
	})
}

// comesTo waits for a state of a mission as the host's own route shows it.
func (r *rig) comesTo(id, want string) {
	r.t.Helper()
	var m struct {
		State string `json:"state"`
	}
	r.until(fmt.Sprintf("%s is %s", id, want), func() bool {
		return r.call(http.MethodGet, "/api/v1/missions/"+id, nil, &m) == http.StatusOK && m.State == want || m.State == "failed"
	})
	if m.State != want {
		r.t.Errorf("%s: state %s, want %s", id, m.State, want)
	}
}

// survives says whether the host is still there after a process of it was killed;
// it waits until that is certain.
func (r *rig) survives(victim int) bool {
	r.t.Helper()
	r.until("the process is gone", func() bool {
		return r.ended() && victim == r.cmd.Process.Pid || victim != r.cmd.Process.Pid && !slices.Contains(r.servers(), victim)
	})
	r.until("the host is there, or has ended", func() bool {
		return r.ended() || r.call(http.MethodGet, "/livez", nil, nil) == http.StatusOK
	})
	return !r.ended()
}

// A process that fails once it has everything costs a moment: the old program
// begins anew, with the listeners as they are (item 7).
func TestAProgramThatFailsAfterTheHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 4})
	mine := r.ownProgram()
	r.dispatch("m", fmt.Sprintf(once, "m", 5))
	r.reaches("m", "running")
	sock := filepath.Join(r.dir, "run", "airlock.sock")
	before, err := os.Stat(sock)
	if err != nil {
		t.Fatal(err)
	}
	r.replace(mine, func(path string) {
		write(t, path, `#!/bin/sh
link=$(sed 's/.*"link":\([0-9]*\).*/\1/' /proc/self/fd/3)
echo '{"ready":true}' >&$link
until grep -q yours <&$link 2>/dev/null; do sleep 0.05; done
exit 1
`, 0o755)
	})
	r.until("the old program has begun anew", func() bool {
		text := r.log.String()
		return strings.Contains(text, "this program begins anew") && strings.Count(text, "airlock is up") >= 3
	})
	after, err := os.Stat(sock)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the operator socket is another one: %v", err)
	}
	r.insist("n", "exit 0")
	r.comesTo("n", "done")
	write(t, r.work+"/go", "", 0o644)
	r.checkOnce(t, "m", 5)
	// And it can be replaced after that.
	r.replace(mine, func(path string) { copyProgram(t, program, path) })
	r.until("it is replaced", func() bool { return strings.Contains(r.log.String(), "the host was handed over") })
	r.insist("o", "exit 0")
	r.comesTo("o", "done")
}

// kill -9 of either process at any moment of a hand-over loses nothing: what was
// accepted runs once, what ran goes on. AIRLOCK_UPGRADE_KILLS is how many.
func TestKillsAtAHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 8, agent: "governance {\n max_resumes = 1000\n }"})
	mine := r.ownProgram()
	for i := range 3 {
		id := fmt.Sprint("before", i)
		r.dispatch(id, fmt.Sprintf(once, id, i))
		r.reaches(id, "running")
	}
	kills := number(t, "AIRLOCK_UPGRADE_KILLS", 4)
	var ids []string
	for i := range kills {
		text := r.log.String()
		over := strings.Count(text, "the host was handed over") + strings.Count(text, "is not replaced") + strings.Count(text, "begins anew")
		r.replace(mine, func(path string) { copyProgram(t, program, path) })
		var there []int
		r.until("there are two of them", func() bool { there = r.servers(); return len(there) > 1 || r.ended() })
		id := fmt.Sprint("during", i)
		ids = append(ids, id)
		// At a moment from the start of the new process to after the end.
		moment := time.Duration(rand.Int64N(int64(1500 * time.Millisecond)))
		victim := there[rand.IntN(len(there))]
		t.Logf("kill %d: %d of %v after %s", i, victim, there, moment)
		killed := make(chan struct{})
		time.AfterFunc(moment, func() { defer close(killed); _ = syscall.Kill(victim, syscall.SIGKILL) })
		objective := "echo x >> $PWD/" + id + ".ran"
		r.insist(id, objective)
		<-killed
		if r.survives(victim) {
			r.until("the hand-over is over", func() bool {
				text := r.log.String()
				return r.ended() || strings.Count(text, "the host was handed over")+strings.Count(text, "is not replaced")+strings.Count(text, "begins anew") > over
			})
		}
		if r.ended() {
			r.until("nothing of it is left", func() bool { return len(r.servers()) == 0 })
			r.startAs(mine)
		}
		r.insist(id, objective)
	}
	r.until("what was accepted ran", func() bool {
		for _, id := range ids {
			if text, _ := os.ReadFile(filepath.Join(r.work, id+".ran")); len(text) == 0 {
				return false
			}
		}
		return true
	})
	write(t, r.work+"/go", "", 0o644)
	for i := range 3 {
		r.checkOnce(t, fmt.Sprint("before", i), i)
	}
	for _, id := range ids {
		r.comesTo(id, "done")
		if text, err := os.ReadFile(filepath.Join(r.work, id+".ran")); string(text) != "x\n" {
			t.Errorf("%s ran more than once: %q, %v", id, text, err)
		}
		r.verify(id)
	}
}

// await waits for a file, or until it is told to stop.
func (r *rig) await(file string, stop <-chan struct{}) {
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ended says that the process that was started has ended.
func (r *rig) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Driver, runtime and revoker are replaced by other files and reloaded while
// missions run and are dispatched: no dispatch is refused and none fails (item 7).
func TestPluginsAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]bool{"revoked": true})
	}))
	t.Cleanup(issuer.Close)
	dir, err := os.MkdirTemp("", "alp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	files := map[string]string{"isolation.host-supervisor.host": "airlock-isolation-host-supervisor",
		"runtime.command.shell": "airlock-runtime-command", "revoker.webhook.issuer": "airlock-revoker-webhook"}
	put := func(file string) {
		copyProgram(t, filepath.Join(bin, "plugins", file), filepath.Join(dir, file+".new"))
		// Another program by its digest, which does the same.
		f, err := os.OpenFile(filepath.Join(dir, file+".new"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = fmt.Fprintln(f, rand.Uint64())
		}
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			err = os.Rename(filepath.Join(dir, file+".new"), filepath.Join(dir, file))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		put(file)
	}
	r := newRig(t, settings{slots: 8, plugins: dir, agent: "revokers = [revoker.webhook.issuer]",
		extra: fmt.Sprintf("revoker \"webhook\" \"issuer\" {\n config {\n url = %q\n secret = \"0123456789abcdef0123456789abcdef\"\n }\n}", issuer.URL)})
	for i := range 4 {
		id := fmt.Sprint("before", i)
		r.dispatch(id, fmt.Sprintf(once, id, i))
		r.reaches(id, "running")
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	for w := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("load-%d-%d", w, i)
				if code := r.call(http.MethodPost, "/api/v1/missions", map[string]any{"mission_id": id, "objective": "echo x >> $PWD/" + id + ".ran", "completion": "x"}, nil); code/100 != 2 {
					t.Errorf("%s was refused: %d", id, code)
					return
				}
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
				r.await(filepath.Join(r.work, id+".ran"), stop) // load, not a flood
			}
		})
	}
	taken := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ids)
	}
	r.until("missions come", func() bool { return taken() > 3 || t.Failed() })
	digests := map[string]bool{}
	for range 2 {
		for ref, file := range files {
			put(file)
			at := taken()
			if code := r.call(http.MethodPost, "/api/v1/plugins/"+ref+"/reload", map[string]any{}, nil); code/100 != 2 {
				t.Errorf("reload of %s: %d", ref, code)
			}
			r.until("missions go on", func() bool { return taken() > at+1 || t.Failed() })
		}
		var list struct {
			Plugins []struct {
				Ref    string `json:"ref"`
				SHA256 string `json:"sha256"`
			} `json:"plugins"`
		}
		if code := r.call(http.MethodGet, "/api/v1/plugins", nil, &list); code != http.StatusOK {
			t.Fatalf("plugins: %d", code)
		}
		for _, p := range list.Plugins {
			digests[p.SHA256] = true
		}
	}
	close(stop)
	wg.Wait()
	if len(digests) != 2*len(files) {
		t.Errorf("%d programs ran in two rounds, want %d: %v", len(digests), 2*len(files), digests)
	}
	write(t, r.work+"/go", "", 0o644)
	for i := range 4 {
		r.checkOnce(t, fmt.Sprint("before", i), i)
	}
	for _, id := range ids {
		r.comesTo(id, "done")
		if text, err := os.ReadFile(filepath.Join(r.work, id+".ran")); string(text) != "x\n" {
			t.Errorf("%s: %q, %v", id, text, err)
		}
	}
}
