package cellagent

import (
	"os"
	"strings"
	"testing"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

func TestASessionHasAScratchDirectoryOfItsOwn(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		s := a.sh("s1", `touch "$AIRLOCK_TMP/mine" && [ "$OTHER" = "$AIRLOCK_TMP/sub" ] && echo "$AIRLOCK_TMP"; read x`)
		s.Env = append(s.Env, "OTHER=${AIRLOCK_TMP}/sub")
		start(t, c, s)
		dir := strings.TrimSpace(readUntil(t, c, "s1", 0, "\n"))
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%q: %v, %v", dir, st, err)
		}
		if err := c.CloseInput(long(t), "s1", s.GetGeneration()); err != nil {
			t.Fatal(err)
		}
		event(t, c, exited)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s after the session: %v", dir, err)
		}
	})
}

func TestOnlyAnInterruptPassesTheLatch(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	s := a.sh("s1", `read x; echo "got $x"; read x`)
	start(t, c, s)
	if err := c.Latch(long(t), 5); err != nil {
		t.Fatal(err)
	}
	wantErr(t, c.Input(long(t), "s1", "k1", []byte("a call\n"), s.GetGeneration()), cell.ErrLatched)
	if err := c.Interrupt(long(t), "s1", "k2", []byte("stop\n"), s.GetGeneration()); err != nil {
		t.Fatal(err)
	}
	if got := readUntil(t, c, "s1", 0, "\n"); got != "got stop\n" {
		t.Errorf("the session read %q", got)
	}
}

func TestTwoSessionsOfAMissionNeverRunSideBySide(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	first := a.sh("s1", "read x")
	start(t, c, first)
	next := first.GetGeneration() + 1
	if err := c.Bind(long(t), "mission", next); err != nil {
		t.Fatal(err)
	}
	second := a.sh("s2", "true")
	second.Generation = next
	_, err := c.Start(long(t), second)
	wantErr(t, err, cell.ErrConflict)
	if err := c.Kill(long(t), "", 0, 0); err != nil {
		t.Fatal(err)
	}
	var started *cellv1.Started
	eventually(t, "the second one starts", func() bool {
		started, err = c.Start(long(t), second)
		return err == nil && started.GetPid() > 0
	})
}
