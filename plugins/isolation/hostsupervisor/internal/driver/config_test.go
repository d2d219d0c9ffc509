package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	d := (&Driver{}).Describe()
	if d.GetName() != "host-supervisor" || !slices.Equal(d.GetCapabilities(), []string{"isolation:host"}) || !slices.Equal(d.GetFeatures(), []string{"pause"}) {
		t.Errorf("describes itself as %v", d)
	}
	if !strings.Contains(d.GetSummary(), "least isolated") {
		t.Errorf("the summary does not say how far it isolates: %q", d.GetSummary())
	}
	for _, a := range d.GetSchema().GetAttributes() {
		if a.GetDescription() == "" {
			t.Errorf("%s has no description", a.GetName())
		}
	}
}

func TestValidateLeadsToTheAttribute(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change map[string]any
		want   []string
	}{
		"defaults":          {nil, nil},
		"a user":            {map[string]any{"user": "root"}, nil},
		"a user by number":  {map[string]any{"user": "0"}, nil},
		"an unknown user":   {map[string]any{"user": "no-such-user-here"}, []string{"user error"}},
		"hide the root":     {map[string]any{"hide": []string{"/x", "/"}}, []string{"hide error"}},
		"write to the root": {map[string]any{"writable": []string{"/."}}, []string{"writable error"}},
		"no namespaces":     {map[string]any{"namespaces": "none"}, []string{"namespaces warning"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range (&Driver{}).Validate(context.Background(), block(t, tt.change)) {
				severity := map[pluginv1.Severity]string{pluginv1.Severity_SEVERITY_ERROR: "error", pluginv1.Severity_SEVERITY_WARNING: "warning"}
				got = append(got, d.GetPath()[0].GetAttribute()+" "+severity[d.GetSeverity()])
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("findings %v, want %v", got, tt.want)
			}
		})
	}
}

func TestHealthSaysWhatIsEnforced(t *testing.T) {
	asRoot(t)
	t.Parallel()
	h := newRig(t, 0, nil).health()
	if h.GetState() != pluginv1.HealthState_HEALTH_STATE_HEALTHY || h.GetAttributes()["link"] != "protected" {
		t.Errorf("as root: %v", h)
	}
	for _, name := range []string{"cpu", "memory", "pids"} {
		if !strings.HasPrefix(h.GetAttributes()["limit."+name], "enforced-by:cgroup-v") {
			t.Errorf("as root, limit.%s is %q", name, h.GetAttributes()["limit."+name])
		}
	}
	h = newRig(t, nobody, map[string]any{"namespaces": "none"}).health()
	if h.GetState() != pluginv1.HealthState_HEALTH_STATE_DEGRADED || !strings.Contains(h.GetReason(), "plain processes") ||
		!strings.Contains(h.GetReason(), "cannot be enforced: cpu, memory, pids") || !strings.HasPrefix(h.GetAttributes()["link"], "unprotected") {
		t.Errorf("as an ordinary user without namespaces: %v", h)
	}
}

func TestTheConfiguredUserIsTheWorkloads(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, map[string]any{"user": "nobody"})
	c := r.create(r.spec("configured"))
	if f := c.GetFacts(); f.GetUid() != nobody || f.GetLink() != pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED {
		t.Errorf("facts %v", f)
	}
	// A live change counts for the next cell; a bad one changes nothing.
	if err := r.configure(block(t, map[string]any{"user": "no-such-user-here"})); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a bad reconfigure gives %v", err)
	}
	if f := r.create(r.spec("next")).GetFacts(); f.GetUid() != nobody {
		t.Errorf("after a bad reconfigure a cell has uid %d", f.GetUid())
	}
	r.destroy("configured")
	r.destroy("next")
}

func TestAnOrdinaryUserCannotGiveAnotherUid(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, nobody, nil)
	spec := r.spec("other")
	spec.Uid = 1000
	if _, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("gives %v", err)
	}
}

func TestSpecsAreChecked(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	for i, change := range []func(*pluginv1.CellSpec){
		func(s *pluginv1.CellSpec) { s.Incarnation = 0 },
		func(s *pluginv1.CellSpec) { s.AgentBinary = "airlock-cell" },
		func(s *pluginv1.CellSpec) { s.AgentSha256 = "00" },
		func(s *pluginv1.CellSpec) { s.LinkSecret = s.GetLinkSecret()[1:] },
		func(s *pluginv1.CellSpec) { s.Network = nil },
		func(s *pluginv1.CellSpec) { s.Network.Mode = 99 },
		func(s *pluginv1.CellSpec) { s.LinkDir = "link" },
		func(s *pluginv1.CellSpec) { s.Resources = &pluginv1.Resources{Cpu: -1} },
		func(s *pluginv1.CellSpec) { s.GetVolumes()[0].Kind = 0 },
		func(s *pluginv1.CellSpec) { s.GetVolumes()[0].Target = "/" },
		func(s *pluginv1.CellSpec) { s.GetVolumes()[0].Target = "w" },
		func(s *pluginv1.CellSpec) { s.Volumes = append(s.GetVolumes(), s.GetVolumes()[0]) },
	} {
		spec := r.spec(fmt.Sprintf("bad%d", i))
		change(spec)
		if _, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("case %d gives %v", i, err)
		}
	}
}

func TestAVolumeCannotBePutIntoTheMachinesFiles(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	spec := r.spec("into")
	spec.GetVolumes()[0].Target = "/usr/share/no-such-directory/w"
	_, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: spec})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "read-only in the cell") {
		t.Errorf("gives %v", err)
	}
	if exists("/usr/share/no-such-directory") {
		t.Error("it was made on the machine")
	}
}

func TestTheAgentsProgramMustBeTheOneThatWasMeant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	var im images
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("one", 0o755)
	const one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
	first, err := im.open(file, one)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := im.open(file, one); err != nil || again != first {
		t.Errorf("the same program is opened twice (%v)", err)
	}
	write("two", 0o755) // of the same length
	if _, err := im.open(file, one); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a program that was changed in place gives %v", err)
	}
	write("one", 0o775)
	if _, err := im.open(file, one); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a program that its group may write gives %v", err)
	}
	write("one", 0o755)
	if _, err := im.open(file, one); err != nil {
		t.Errorf("the program that was put back: %v", err)
	}
}

// TestAnUrgentStopDoesNotWaitForAPatientOne: the one with a grace must not
// hold it up.
func TestAnUrgentStopDoesNotWaitForAPatientOne(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	c := r.create(r.spec("urgent"))
	// An agent that stands still cannot follow the request to end.
	h := handleOf(t, c.GetRef())
	if err := signalStop(h.Process.PID); err != nil {
		t.Fatal(err)
	}
	patient := make(chan error, 1)
	go func() {
		_, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: c.GetRef(), Grace: durationpb.New(time.Hour)})
		patient <- err
	}()
	got, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: c.GetRef()})
	if err != nil || got.GetProof().GetMethod() != pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY {
		t.Errorf("the urgent stop answers %v, %v", got, err)
	}
	if err := <-patient; err != nil {
		t.Errorf("the patient stop: %v", err)
	}
	r.destroy("urgent")
}
