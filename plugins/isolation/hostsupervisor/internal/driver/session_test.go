package driver

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// link opens a cell's link, claimed for a mission.
func (r *rig) link(c *pluginv1.Cell) *cell.Conn {
	r.t.Helper()
	conn, err := cell.Dial(r.ctx(), c.GetLink(), []byte(strings.Repeat("s", secretSize)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.Bind(r.ctx(), "m", 1); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// begin starts a script in a cell.
func (r *rig) begin(conn *cell.Conn, c *pluginv1.Cell, id, script string) {
	r.t.Helper()
	_, err := conn.Start(r.ctx(), &cellv1.Start{
		SessionId: id, Generation: 1, Argv: []string{"/bin/sh", "-c", script}, Cwd: c.GetFacts().GetWorkspace(),
		Uid: c.GetFacts().GetUid(), Gid: c.GetFacts().GetGid(), OnFull: cellv1.OnFull_ON_FULL_DROP_OLDEST,
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// say runs a script to its end, whatever its exit, and gives its output.
func (r *rig) say(conn *cell.Conn, c *pluginv1.Cell, id, script string) string {
	r.t.Helper()
	r.begin(conn, c, id, script)
	out, err := conn.ReadOutput(r.ctx(), id, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	var b bytes.Buffer
	for {
		f, err := out.Next()
		if errors.Is(err, io.EOF) || err == nil && f.GetEnd() != nil {
			return b.String()
		}
		if err != nil {
			r.t.Fatal(err)
		}
		b.Write(f.GetData().GetData())
	}
}

func TestWhatACellSees(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, map[string]any{"hide": []string{"/root", "/opt"}})
	spec := r.spec("sees")
	spec.Uid, spec.Gid = 71300, 71300
	c := r.create(spec)
	conn := r.link(c)
	for name, tt := range map[string]struct{ script, want string }{
		"nothing of root's home":          {"ls -A /root 2>&1 | head -1; true", "ls: cannot open directory '/root': Permission denied\n"},
		"nothing of what is hidden":       {"ls -A /opt 2>&1 | head -1; true", "ls: cannot open directory '/opt': Permission denied\n"},
		"no sockets of the machine":       {"ls -A /run | sort | tr '\\n' ' '", "airlock lock "},
		"a /tmp of its own":               {`ls -A /tmp | grep -v "^${AIRLOCK_TMP##*/}\$"; true`, ""},
		"no process of the machine":       {"cat /proc/1/comm /proc/1/cmdline | tr '\\0' ' ' | grep -c 'serve --link-dir'", "1\n"},
		"its own name":                    {"cat /proc/sys/kernel/hostname", "sees\n"},
		"a read-only /usr":                {"touch /usr/x 2>&1", "touch: cannot touch '/usr/x': Read-only file system\n"},
		"no writing to /etc for itself":   {"touch /etc/x 2>&1", "touch: cannot touch '/etc/x': Permission denied\n"},
		"few devices":                     {"ls /dev | tr '\\n' ' '", "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero "},
		"no way to the link":              {"ls /run/airlock/link 2>&1", "ls: cannot open directory '/run/airlock/link': Permission denied\n"},
		"no way to change its limits":     {"(echo 0 > /run/airlock/cgroup/unified/cgroup.freeze) 2>/dev/null; echo $?", "2\n"},
		"no memory of the agent":          {"head -c1 /proc/1/environ 2>&1", "head: cannot open '/proc/1/environ' for reading: Permission denied\n"},
		"no signal to the agent":          {"kill -9 1 2>/dev/null || echo refused", "refused\n"},
		"a program to ask with":           {"airlock-cell version >/dev/null && echo yes", "yes\n"},
		"nothing of the driver's to read": {"ls -l /proc/self/fd | grep -c memfd", "0\n"},
	} {
		if got := r.say(conn, c, strings.ReplaceAll(name, " ", "-"), tt.script); got != tt.want {
			t.Errorf("%s: %q says %q, not %q", name, tt.script, got, tt.want)
		}
	}
	r.destroy("sees")
}

func TestFilesArePlacedInEtcForTheCellAlone(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	spec := r.spec("etc")
	spec.Uid = 71301
	c := r.create(spec)
	conn := r.link(c)
	const file = "/etc/airlock-driver-test/settings.json"
	err := conn.PutFiles(r.ctx(), []*cellv1.File{{Path: file, Content: []byte("managed"), Mode: 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.say(conn, c, "read", "cat "+file+"; (echo x > "+file+") 2>/dev/null; cat "+file); got != "managedmanaged" {
		t.Errorf("the cell reads %q", got)
	}
	if exists(file) {
		t.Errorf("%s is on the machine", file)
	}
	r.destroy("etc")
}

func TestTheAgentHasNothingOfTheDriver(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	spec := r.spec("bare")
	spec.Uid = 71302
	c := r.create(spec)
	pid := handleOf(t, c.GetRef()).Process.PID
	for _, fd := range links(t, pid) {
		// Its log, /dev/null, its socket, and what Go's runtime opens.
		switch {
		case fd == "/dev/null", strings.HasSuffix(fd, "/agent.log"), strings.HasPrefix(fd, "socket:"), strings.HasPrefix(fd, "anon_inode:"),
			strings.HasPrefix(fd, "/run/airlock/"), strings.HasPrefix(fd, "/proc/"):
		default:
			t.Errorf("the agent holds %s", fd)
		}
	}
	env := readFile(t, procFile(pid, "environ"))
	for _, word := range []string{serveEnv, "GOCOVERDIR", "HOME="} {
		if strings.Contains(env, word) {
			t.Errorf("the agent's environment has %s", word)
		}
	}
	// On every thread: they are the agent's from before it was confined, too. One
	// of them starts workloads without any other uid, and has no capability.
	statuses, err := filepath.Glob(procFile(pid, "task/*/status"))
	if err != nil || len(statuses) < 3 {
		t.Fatalf("%d threads (%v)", len(statuses), err)
	}
	weak := 0
	for _, file := range statuses {
		status := readFile(t, file)
		if strings.Contains(status, "CapEff:\t0000000000000000\n") {
			weak++
			continue
		}
		for _, line := range []string{"NoNewPrivs:\t1\n", "CapPrm:\t00000000000000eb\n", "CapEff:\t00000000000000eb\n", "CapBnd:\t00000000000000eb\n", "CapInh:\t0000000000000000\n"} {
			if !strings.Contains(status, line) {
				t.Errorf("%s lacks %q", file, line)
			}
		}
	}
	if weak != 1 {
		t.Errorf("%d threads have no capability", weak)
	}
	r.destroy("bare")
}
