package workflow_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// childEnv makes the test binary play a host that is killed.
const childEnv = "AIRLOCK_WORKFLOW_CHILD"

func TestMain(m *testing.M) {
	children := map[string]func(dir string) error{"composite": compositeChild, "oracle": oracleChild}
	if role := os.Getenv(childEnv); role != "" {
		if err := children[role](os.Getenv("AIRLOCK_WORKFLOW_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func child(t testing.TB, role, dir string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+role, "AIRLOCK_WORKFLOW_DIR="+dir), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// openHost opens a store as a host does: what an earlier life has left half
// done is settled before anything new begins.
func openHost(dir string, hook store.Hook) (*store.Store, *workflow.Keeper, error) {
	s, err := store.Open(store.Options{Dir: dir, Ballast: -1, Hook: hook})
	if err != nil {
		return nil, nil, err
	}
	k := workflow.New(workflow.Options{Store: store.Workflow{S: s}, Key: []byte("0123456789abcdef0123456789abcdef")})
	err = s.Commit(ctx, store.Batch{Work: func(tx workflow.Tx, _ *store.Batch) error { return k.Recover(tx) }})
	return s, k, err
}
