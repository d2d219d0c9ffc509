package driver

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/kvm"
)

func TestTheAcceleratorIsTheOneThatWasProven(t *testing.T) {
	t.Parallel()
	works := kvm.Result{State: kvm.Works, Detail: "900.0 million instructions a second"}
	slow := kvm.Result{State: kvm.Emulated, Detail: "2.1 million instructions a second"}
	absent := kvm.Result{State: kvm.Absent, Detail: "there is no /dev/kvm"}
	for name, c := range map[string]struct {
		accel, turned string
		found         kvm.Result
		want, reason  string
	}{
		"auto, works":              {accelAuto, "", works, accelKVM, "900.0 million"},
		"auto, emulated":           {accelAuto, "", slow, accelTCG, "present-but-emulated"},
		"auto, absent":             {accelAuto, "", absent, accelTCG, "absent"},
		"auto, works but no boot":  {accelAuto, "QEMU stopped the VM", works, accelTCG, "QEMU stopped the VM"},
		"kvm, works":               {accelKVM, "", works, accelKVM, "works"},
		"kvm, emulated":            {accelKVM, "", slow, "", "present-but-emulated"},
		"kvm, absent":              {accelKVM, "", absent, "", "there is no /dev/kvm"},
		"kvm is never given up":    {accelKVM, "once it did not boot", works, accelKVM, "works"},
		"tcg, whatever was found":  {accelTCG, "", works, accelTCG, "accel"},
		"tcg, where there is none": {accelTCG, "", absent, accelTCG, "accel"},
	} {
		got := choose(c.accel, c.found, c.turned)
		if got.accel != c.want || !strings.Contains(got.reason, c.reason) {
			t.Errorf("%s: %q, because %q", name, got.accel, got.reason)
		}
	}
}

// A KVM that is there and does not run code at speed must be found out; on a
// machine with a good one this test sees that it is used.
func TestTheProbeTellsWhatThisMachineHas(t *testing.T) {
	t.Parallel()
	r := kvm.Probe()
	_, err := os.Stat("/dev/kvm")
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing != (r.State == kvm.Absent):
		t.Errorf("/dev/kvm: %v, and the probe says %v", err, r)
	case r.State == kvm.Works && r.PerSecond < 50e6, r.State == kvm.Emulated && r.PerSecond >= 50e6:
		t.Errorf("the probe says %+v", r)
	case r.Detail == "":
		t.Error("the probe does not say why")
	}
	t.Logf("%+v", r)
}
