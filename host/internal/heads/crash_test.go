package heads

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/journal"
)

const (
	crashDirEnv   = "AIRLOCK_HEADS_CRASH_DIR"
	crashPointEnv = "AIRLOCK_HEADS_CRASH_POINT"
)

// crashChild publishes heads until it meets the point for the third time, and
// kills itself there. It prints each head that it was told is durable.
func crashChild(dir string, at Point) {
	key, err := LoadOrCreateKey(dir + "/keys/host.key")
	if err != nil {
		panic(err)
	}
	met := 0
	l, err := Open(Options{File: file1(dir), Key: key, Hook: func(p Point) error {
		if p == at {
			if met++; met == 3 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		return nil
	}})
	if err != nil {
		panic(err)
	}
	first, _ := l.Trusted("task-0")
	for seq := first.Sequence + 1; ; seq++ {
		var hs []journal.NewHead
		for i := range 600 { // large enough that the file is compacted
			h := head(fmt.Sprintf("task-%d", i), seq)
			h.Ended = i > 300
			hs = append(hs, h)
		}
		l.Publish(hs, true)
		if err := l.Flush(context.Background()); err != nil {
			panic(err)
		}
		fmt.Println(seq)
	}
}

func TestAKillLosesNoHeadThatWasDurable(t *testing.T) {
	t.Parallel()
	for _, point := range Points() {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			last := uint64(0)
			for range 2 { // the second time over what the first left
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), crashDirEnv+"="+dir, crashPointEnv+"="+string(point))
				cmd.Stderr = os.Stderr
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				for sc := bufio.NewScanner(out); sc.Scan(); {
					if last, err = strconv.ParseUint(strings.TrimSpace(sc.Text()), 10, 64); err != nil {
						t.Fatal(err)
					}
				}
				var exit *exec.ExitError
				if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("the child was not killed: %v", err)
				}
				l := open(t, dir, testKey(t, dir))
				if p := l.Problems(); len(p) != 0 {
					t.Fatalf("%v", p)
				}
				for _, i := range []int{0, 299, 301, 599} {
					task := fmt.Sprintf("task-%d", i)
					if got, ok := l.Trusted(task); !ok && last > 0 || got.Sequence < last || l.Doubt(task) != nil {
						t.Fatalf("%s: durable was %d, found %d (%v)", task, last, got.Sequence, l.Doubt(task))
					}
				}
				closeLog(t, l)
			}
		})
	}
}
