package driver

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// A driver that dies between a fork and the record of it leaves a process that
// only its marker finds.
func TestWhatADeadDriverHasForkedIsFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	marker := rand.Text()
	start := func(marker string) *child {
		user := ids{uint32(os.Geteuid()), uint32(os.Getegid())}
		c, err := spawn("/bin/sleep", []string{"sleep", "600"}, nil, nil, user, marker, filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = kill(context.Background(), c.id)
			<-c.done
		})
		return c
	}
	lost, other := start(marker), start(rand.Text())
	// The exec is over when the environment is the new one.
	waitFor(t, "the exec", func() bool {
		b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(lost.id.PID), "environ"))
		return strings.Contains(string(b), marker)
	})
	d := New(nil, time.Now, nil)
	proof, err := d.end(ctx, &record{Marker: marker, handle: handle{CellID: "lost"}})
	if err != nil {
		t.Fatal(err)
	}
	if proof.GetMethod() != pluginv1.ProofMethod_PROOF_METHOD_VM_GONE {
		t.Errorf("the proof is %v", proof)
	}
	select {
	case <-lost.done:
	case <-ctx.Done():
		t.Error("the process of a lost start still runs")
	}
	select {
	case <-other.done:
		t.Error("the process of another cell was killed")
	default:
	}
	if proof, err = d.end(ctx, &record{Marker: marker, handle: handle{CellID: "lost"}}); err != nil || proof.GetMethod() != pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN {
		t.Errorf("once more: %v, %v", proof, err)
	}
}
