package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// patience bounds everything that is waited for.
const patience = 90 * time.Second

// rig is a host as a process, and the orchestrator that it is registered with.
type rig struct {
	token string // of the task "bench", for a harness's calls
	b     *bench
	dir   string
	conf  string
	orc   *orchestrator.Orchestrator
	watch *watch
	api   *http.Client

	warm bool // its agents keep warm cells

	cmd   *exec.Cmd
	done  chan struct{}
	began time.Time // when the process was started
}

// newRig lays a host out; agents are agent blocks. Nothing runs yet but the
// orchestrator. clean must be called.
func newRig(b *bench, agents string) (*rig, error) {
	dir, err := os.MkdirTemp(b.dir, "h")
	if err != nil {
		return nil, err
	}
	r := &rig{b: b, dir: dir, watch: newWatch(), warm: warmSetting.MatchString(agents)}
	r.orc = orchestrator.New(orchestrator.Options{AllowAgentID: true, Hooks: r.watch.hooks()})
	if err = errors.Join(r.orc.Start("127.0.0.1:0"), os.Chmod(dir, 0o711)); err == nil {
		r.conf, err = writeConfig(dir, b.bin, r.orc.URL(), agents)
	}
	if err != nil {
		r.orc.Close()
		return nil, err
	}
	r.api = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "run", "airlock.sock"))
		},
	}}
	return r, nil
}

// startedRig is newRig with a host that is up.
func startedRig(b *bench, agents string) (*rig, error) {
	r, err := newRig(b, agents)
	if err != nil {
		return nil, err
	}
	if err := r.start(); err != nil {
		r.clean()
		return nil, err
	}
	return r, nil
}

// start starts the host and waits until it is registered and ready.
func (r *rig) start() error {
	log, err := os.OpenFile(filepath.Join(r.dir, "host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(r.b.bin, "airlock"), "serve", "--config", r.conf)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for this program
	cmd.Env = append(os.Environ(), "HOME="+r.dir)
	r.began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	r.cmd, r.done = cmd, done
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if r.orc.Connected(1, 50*time.Millisecond) {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("the host has ended: %s\n%s", cmd.ProcessState, r.logTail())
		default:
		}
	}
	return fmt.Errorf("the host did not register\n%s", r.logTail())
}

// kill is kill -9 of the host; it waits until the orchestrator has seen it.
func (r *rig) kill() error {
	if err := r.cmd.Process.Kill(); err != nil {
		return err
	}
	<-r.done
	return until(r.b.ctx, "the orchestrator sees that the host is gone", func() bool { return !r.orc.Connected(1, 0) })
}

func (r *rig) running() bool {
	if r.cmd == nil {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// clean ends every mission, the host and the orchestrator, and removes all
// files. It does so after a signal too.
func (r *rig) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.b.ctx), 2*patience)
	defer cancel()
	if r.cmd != nil {
		if err := r.cleanHost(ctx); err != nil {
			r.b.note("the host was not cleaned up: %v", err)
		}
	}
	for i, v := range r.orc.Violations() {
		if i == 5 {
			break
		}
		r.b.note("breach of the contract: %s: %s", v.Kind, v.Detail)
	}
	r.api.CloseIdleConnections()
	r.orc.Close()
	if pids := r.cellProcesses(); len(pids) > 0 {
		r.b.note("processes of cells are left and killed: %v", pids)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if err := os.RemoveAll(r.dir); err != nil {
		r.b.note("%v", err)
	}
}

// cleanHost ends every mission and then the host. Warm cells outlive a host; a
// start that wants none of them ends them.
func (r *rig) cleanHost(ctx context.Context) error {
	if !r.running() {
		if err := r.start(); err != nil {
			return err
		}
	}
	if err := r.abortAll(ctx); err != nil {
		return errors.Join(err, r.stop())
	}
	if r.warm {
		if err := errors.Join(r.stop(), wantNoWarmCells(r.conf), r.start()); err != nil {
			return err
		}
	}
	return errors.Join(until(ctx, "the cells are gone", func() bool { return len(r.cellProcesses()) == 0 }), r.stop())
}

// stop ends the host as an operator would.
func (r *rig) stop() error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.done:
		return nil
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		<-r.done
		return errors.New("the host did not end by itself")
	}
}

// abortAll ends every live mission, those that wait before those that run, so
// that none starts on the way.
func (r *rig) abortAll(ctx context.Context) error {
	for ctx.Err() == nil {
		var page struct {
			Missions []struct {
				ID      string `json:"mission_id"`
				State   string `json:"state"`
				Runtime string `json:"runtime"`
			} `json:"missions"`
		}
		if err := r.call(ctx, "GET", "/api/v1/missions?live=true&limit=100", nil, &page); err != nil {
			return err
		}
		page.Missions = slices.DeleteFunc(page.Missions, func(m struct {
			ID      string `json:"mission_id"`
			State   string `json:"state"`
			Runtime string `json:"runtime"`
		}) bool {
			return m.Runtime == "harness" // it has no cell, and is stopped rather than ended
		})
		if len(page.Missions) == 0 {
			return nil
		}
		waiting := false
		for _, m := range page.Missions {
			waiting = waiting || m.State == "assigned"
		}
		for _, m := range page.Missions {
			if m.State == "assigned" || !waiting {
				// One that has just ended is no error.
				_ = r.call(ctx, "POST", "/api/v1/missions/"+m.ID+"/abort", map[string]any{}, nil)
			}
		}
	}
	return ctx.Err()
}

// call talks to the operator socket.
func (r *rig) call(ctx context.Context, method, path string, body, into any) error {
	var rd io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		rd = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, rd)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.token != "" && strings.HasPrefix(path, "/tasks/bench/") {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.api.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	}
	if into == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func (r *rig) logTail() string {
	text, _ := os.ReadFile(filepath.Join(r.dir, "host.log"))
	return string(text[max(0, len(text)-4000):])
}

// until polls a condition, seldom enough that the asking is not measured.
func until(ctx context.Context, what string, cond func() bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if cond() {
			return nil
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
	return fmt.Errorf("it did not come to this in %s: %s", patience, what)
}
