package plugins

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestAPluginThatStandsStillIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		alter func(*Deadlines)
		exit  string
	}{
		"stopped by a signal": {func(*Deadlines) {}, "killed by the host: it stood still for 2s, stopped by a signal"},
		"no sign of life and no wish for a processor": {func(d *Deadlines) {
			d.Still, d.Describe, d.Probe, d.Deaf = time.Hour, time.Second, 50*time.Millisecond, 3*time.Second
		}, "killed by the host: no sign of life for 3s, and it wanted no processor meanwhile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { c.alter(&o.Deadlines) })
			r.install("driver", "airlock-isolation-good")
			r.start("isolation.good.a")
			pid := r.await("isolation.good.a", "health", healthy).PID
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			s := r.await("isolation.good.a", "replacement", func(s Status) bool { return s.State == Healthy && s.PID != pid })
			if s.LastExit != c.exit {
				t.Errorf("last exit: %s", s.LastExit)
			}
		})
	}
}

// TestASlowPluginIsNotTakenForADeafOne: a process that has or wants a processor
// is slow, or the machine is busy.
func TestASlowPluginIsNotTakenForADeafOne(t *testing.T) {
	t.Parallel()
	idle := glance{state: 'S', ticks: 7}
	for name, c := range map[string]struct {
		before, after glance
		quiet         bool
	}{
		"asleep":               {idle, idle, true},
		"stopped":              {idle, glance{state: 'T', ticks: 7}, true},
		"it had a processor":   {idle, glance{state: 'S', ticks: 8}, false},
		"it wants one now":     {idle, glance{state: 'S', ticks: 7, wants: true}, false},
		"it wanted one before": {glance{state: 'S', ticks: 7, wants: true}, idle, false},
		"it was gone":          {glance{}, idle, false},
		"it is gone":           {idle, glance{}, false},
	} {
		if got := quiet(c.before, c.after); got != c.quiet {
			t.Errorf("%s: quiet is %v", name, got)
		}
	}
	for name, c := range map[string]struct {
		argv  []string
		quiet bool
	}{"sleeps": {[]string{"sleep", "1000"}, true}, "works": {[]string{"sh", "-c", "while :; do :; done"}, false}} {
		cmd := exec.Command(c.argv[0], c.argv[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := look(cmd.Process.Pid)
		if c.quiet {
			eventually(t, name+": it is quiet", func() bool {
				after := look(cmd.Process.Pid)
				ok := quiet(before, after)
				before = after
				return ok
			})
		} else if after := look(cmd.Process.Pid); quiet(before, after) {
			t.Errorf("%s: it counts as quiet: %+v %+v", name, before, after)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if g := look(cmd.Process.Pid); g.state != 0 {
			t.Errorf("%s: after its end: %+v", name, g)
		}
	}
}
