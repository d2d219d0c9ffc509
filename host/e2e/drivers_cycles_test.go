package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// cycles is how many missions a driver is put through: AIRLOCK_CYCLES, or few.
func cycles(t *testing.T, place string) int {
	t.Helper()
	if v := os.Getenv("AIRLOCK_CYCLES"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("AIRLOCK_CYCLES is %q, not a number of missions", v)
		}
		return n
	}
	return map[string]int{"host-supervisor": 40, "docker": 10, "qemu-kvm": 3}[place]
}

// TestNothingIsLeftAfterManyCycles of missions that end well, fail, are killed
// and are aborted: no cell, container, VM, process, mount, control group or file
// of one (the rig looks for these at the end), and no descriptor of a plugin.
// AIRLOCK_CYCLES=200 is what a release is tried with.
func TestNothingIsLeftAfterManyCycles(t *testing.T) {
	r := driverRig(t, "", "")
	r.inPlaces(t, func(r *rig, place string) {
		open := 0
		n := cycles(r.t, place)
		for i := range n {
			id := fmt.Sprintf("%s-%d", place, i)
			switch i % 4 {
			case 0:
				r.dispatchTo(place, id, "echo x > $PWD/"+id+"; rm $PWD/"+id)
				r.reaches(id, "done")
			case 1:
				r.dispatchTo(place, id, "kill -9 $$")
				r.reaches(id, "failed")
			case 2:
				r.dispatchTo(place, id, "(setsid sleep 1000 &); exit 5")
				r.reaches(id, "failed")
			default:
				r.dispatchTo(place, id, "trap '' TERM; sleep 1000")
				r.reaches(id, "running")
				r.call("POST", "/api/v1/missions/"+escape(id)+"/abort", nil, nil)
				r.reaches(id, "aborted")
			}
			if i == min(3, n-1) {
				r.until("its cells are gone", func() bool { return len(r.cellsNow()) <= len(places) })
				open = r.descriptors(place)
			}
		}
		// One call under way more or less is no leak; one descriptor a cycle is.
		r.until("the plugin holds no more descriptors than after a few missions", func() bool { return r.descriptors(place) <= open+4 })
	})
}

// descriptors is how many the processes of a driver's plugin hold.
func (r *rig) descriptors(place string) int {
	n := 0
	for _, pid := range r.pluginPids(place) {
		list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
		if err != nil && !strings.Contains(err.Error(), "no such") {
			r.t.Error(err)
		}
		n += len(list)
	}
	return n
}
