package cellagent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/sdk/cell"
)

func withdrawn(e cell.Event) string { return e.AskWithdrawn.GetAskId() }

func TestAsk(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		start(t, c, a.sh("other", "exec sleep 1000"))
		// Through PATH, and from a process that has detached itself.
		start(t, c, a.sh("s", `airlock-cell ask --context "why it matters" May I go on; echo "status $?"; $AIRLOCK_CELL ask second; echo "status $?"`))
		q := event(t, c, asked)
		if q.GetPrompt() != "May I go on" || q.GetContext() != "why it matters" || q.GetSessionId() != "s" || q.GetAskId() == "" {
			t.Errorf("ask %v", q)
		}
		for range 2 {
			if err := c.AskAnswer(long(t), q.GetAskId(), "yes, do", ""); err != nil {
				t.Fatal(err)
			}
		}
		readUntil(t, c, "s", 0, "yes, do\nstatus 0\n")
		q = event(t, c, asked)
		if err := c.AskAnswer(long(t), q.GetAskId(), "", "nobody is there"); err != nil {
			t.Fatal(err)
		}
		o := readAll(t, c, "s")
		if !strings.HasSuffix(string(o.stdout), "status 1\n") || !strings.Contains(string(o.stderr), "nobody is there") {
			t.Errorf("output %q %q", o.stdout, o.stderr)
		}
		wantErr(t, c.AskAnswer(long(t), "ask-none", "x", ""), cell.ErrNotFound)
	})
}

func TestAskWithNoHost(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("s", `read go; airlock-cell ask anybody there; echo "status $?"`))
	if err := c.Input(long(t), "s", "k", []byte("\n"), 1); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	var id string
	eventually(t, "the question in the hello", func() bool {
		h, err := a.redialHello()
		if err != nil || len(h.GetAsks()) != 1 {
			return false
		}
		id = h.GetAsks()[0].GetAskId()
		return h.GetAsks()[0].GetPrompt() == "anybody there"
	})
	c = a.dial(t)
	if got := c.Hello().GetAsks(); len(got) != 1 || got[0].GetAskId() != id {
		t.Errorf("asks %v", got)
	}
	if err := c.AskAnswer(long(t), id, "here", ""); err != nil {
		t.Fatal(err)
	}
	readUntil(t, c, "s", 0, "here\nstatus 0\n")
	if h, err := a.redialHello(); err != nil || len(h.GetAsks()) != 0 {
		t.Errorf("asks %v %v", h.GetAsks(), err)
	}
}

func TestAskIsWithdrawnWhenTheAskerDies(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("s", `airlock-cell ask one & read x; kill -9 $!; wait; exec sleep 1000`))
	q := event(t, c, asked)
	if err := c.Input(long(t), "s", "k", []byte("\n"), 1); err != nil {
		t.Fatal(err)
	}
	if id := event(t, c, withdrawn); id != q.GetAskId() {
		t.Errorf("withdrawn %s", id)
	}
	wantErr(t, c.AskAnswer(long(t), q.GetAskId(), "too late", ""), cell.ErrNotFound)
	if h, err := a.redialHello(); err != nil || len(h.GetAsks()) != 0 {
		t.Errorf("asks %v %v", h.GetAsks(), err)
	}
}

func TestAskIsForTheWorkloadOnly(t *testing.T) {
	needRoot(t, "another uid")
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.sh("s", `echo $AIRLOCK_ASK_SOCKET end; exec sleep 1000`))
	socket := strings.Fields(readUntil(t, c, "s", 0, "end"))[0]
	cmd := exec.Command("/proc/self/exe", "ask", "let me in")
	cmd.Env = []string{"AIRLOCK_ASK_SOCKET=" + socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 60000, Gid: 60000}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "no session of the cell") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAskOutsideOfACell(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", "ask", "anybody")
	cmd.Env = []string{"AIRLOCK_ASK_SOCKET="}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "AIRLOCK_ASK_SOCKET") {
		t.Errorf("%v: %s", err, out)
	}
	_, err := Ask(fmt.Sprintf("%s/none", os.TempDir()), "x", "")
	wantErr(t, err, os.ErrNotExist)
}
