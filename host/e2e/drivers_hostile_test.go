package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// logQuota is what a session's log may hold on disk.
const logQuota = 256 << 20

// TestAHostileMissionStaysInItsCell whatever the driver is.
func TestAHostileMissionStaysInItsCell(t *testing.T) {
	site := listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "listed") })
	other := listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "never") })
	r := driverRig(t, fmt.Sprintf("network {\n    mode  = \"gateway\"\n    allow = [%q]\n  }", site), "")
	t.Run("too many processes", func(t *testing.T) { r.inPlaces(t, (*rig).tooManyProcesses) })
	t.Run("a fork bomb", func(t *testing.T) { r.inPlaces(t, (*rig).forkBomb) })
	t.Run("output without end", func(t *testing.T) { r.inPlaces(t, (*rig).outputWithoutEnd) })
	t.Run("the machine's files", func(t *testing.T) { r.inPlaces(t, (*rig).machinesFiles) })
	t.Run("the killed agent", func(t *testing.T) { r.inPlaces(t, (*rig).killsItsAgent) })
	t.Run("the network", func(t *testing.T) {
		r.inPlaces(t, func(r *rig, place string) { r.network(place, site, other) })
	})
	for _, place := range places { // the host is well, and so are the drivers
		r.worksIn(place, "after-"+place)
	}
	if !r.allHealthy() {
		t.Errorf("health: %v", r.unhealthy())
	}
}

// tooManyProcesses: the limit of pids holds, and is the mission's own trouble.
func (r *rig) tooManyProcesses(place string) {
	id := "crowd-" + place
	r.dispatchTo(place, id, fmt.Sprintf(`i=0; while [ $i -lt 200 ]; do sleep 300 & i=$((i+1)); echo $i >> $PWD/%s; done; exit 0`, id))
	m := r.reaches(id, "done", "failed")
	got := r.lines(id)
	if len(got) == 0 || len(got) > 64 || m.State != "failed" {
		r.t.Errorf("%d processes with a limit of 64: state %s, error %q", len(got), m.State, m.Error)
	}
}

// forkBomb: the host and a neighbour in the same driver's cells never notice,
// and an abort ends it.
func (r *rig) forkBomb(place string) {
	id := "bomb-" + place
	r.dispatchTo(place, id, `trap '' TERM; echo x > $PWD/`+id+`; b() { b | b & }; b; while :; do :; done`)
	r.until("it has begun", func() bool { return r.size(id) > 0 })
	r.worksIn(place, "beside-bomb-"+place)
	if code := r.call("POST", "/api/v1/missions/"+id+"/abort", map[string]any{}, nil); code/100 != 2 {
		r.t.Errorf("abort: %d", code)
	}
	r.reaches(id, "aborted")
}

// outputWithoutEnd: the log on disk stays within its quota. An emulated VM is
// too slow to fill it in a test's time.
func (r *rig) outputWithoutEnd(place string) {
	id := "flood-" + place
	enough := uint64(logQuota + 32<<20)
	if place == "qemu-kvm" {
		enough = 4 << 20
	}
	r.dispatchTo(place, id, "stty -opost; exec cat /dev/zero")
	session := r.session(id)
	r.until("there is much output", func() bool { return r.written(session) >= enough })
	r.worksIn(place, "beside-flood-"+place)
	if code := r.call("POST", "/api/v1/missions/"+id+"/abort", map[string]any{}, nil); code/100 != 2 {
		r.t.Errorf("abort: %d", code)
	}
	r.reaches(id, "aborted")
	var size int64
	entries, err := os.ReadDir(filepath.Join(r.dir, "data", "sessions"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			size += st.Size()
		}
	}
	if most := int64(len(places)*logQuota + 8<<20); size > most {
		r.t.Errorf("the logs take %d bytes, more than %d", size, most)
	}
}

// written is how much output a session has had.
func (r *rig) written(session string) uint64 {
	resp, err := r.api.Get("http://localhost/api/v1/sessions/" + escape(session) + "/log")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	n, _ := strconv.ParseUint(resp.Header.Get("Airlock-Log-Next"), 10, 64)
	return n
}

// machinesFiles: what is not for everybody's eyes is not for a mission's, nor
// is another cell's link.
func (r *rig) machinesFiles(place string) {
	shadow, err := os.ReadFile("/etc/shadow")
	if err != nil {
		r.t.Fatal(err)
	}
	near := "near-" + place
	r.dispatchTo("host-supervisor", near, "while [ ! -e $PWD/"+near+".go ]; do sleep 0.1; done")
	r.reaches(near, "running")
	cells := r.cellsNow()
	if len(cells) == 0 {
		r.t.Fatal("there is no other cell")
	}
	paths := []string{"/etc/shadow", r.conf, filepath.Join(r.dir, "operator.token"), filepath.Join(r.dir, "heads", "host.key")}
	for _, id := range cells {
		link := filepath.Join(r.dir, "run", "cells", id)
		paths = append(paths, link)
		if files, err := os.ReadDir(link); err == nil {
			for _, f := range files {
				paths = append(paths, filepath.Join(link, f.Name()))
			}
		}
	}
	id := "spy-" + place
	script := "exec 2>/dev/null; "
	for _, p := range paths {
		script += fmt.Sprintf("if [ -d %[1]s ]; then ls %[1]s/* ; else cat %[1]s; fi && echo REACHED %[1]s; [ -w %[1]s ] && echo WRITABLE %[1]s\n", p)
	}
	r.dispatchTo(place, id, script+"cat /proc/[0-9]*/root/etc/shadow && echo REACHED roots; mknod $PWD/"+id+".dev b 8 0 && echo MADE; echo over")
	r.reaches(id, "done", "failed")
	out := string(r.output(id))
	if !strings.HasSuffix(out, "over\r\n") {
		r.t.Errorf("output %q", out)
	}
	for _, bad := range []string{"REACHED", "WRITABLE", "MADE", strings.SplitN(string(shadow), "\n", 2)[0]} {
		if strings.Contains(out, bad) {
			r.t.Errorf("%q in the output %q", bad, out)
		}
	}
	write(r.t, filepath.Join(r.work, near+".go"), "", 0o644)
	if m := r.reaches(near, "done", "failed"); m.State != "done" {
		r.t.Errorf("the neighbour: %s %q", m.State, m.Error)
	}
}

// killsItsAgent: it is another user's, and not in reach. The mission ends only
// itself.
func (r *rig) killsItsAgent(place string) {
	id := "killer-" + place
	r.dispatchTo(place, id, `kill -9 1 && echo KILLED; kill -9 $PPID && echo KILLED; kill -STOP $PPID && echo STOPPED; echo over; kill -9 -1; kill -9 $$`)
	m := r.reaches(id, "done", "failed")
	out := string(r.output(id))
	if strings.Contains(out, "KILLED") || strings.Contains(out, "STOPPED") || !strings.Contains(out, "over\r\n") {
		r.t.Errorf("output %q", out)
	}
	if why := r.reason(id); m.ExitCode == nil || *m.ExitCode != 137 || why != "signal" {
		r.t.Errorf("state %s, reason %q, error %q", m.State, why, m.Error)
	}
}

// network: the gateway leads to what is listed, and nothing else leads anywhere.
func (r *rig) network(place, site, other string) {
	id := "out-" + place
	r.dispatchTo(place, id, fmt.Sprintf(`get() { busybox wget -q -O - "$@" 2>/dev/null; echo "=$1=$?"; }
export http_proxy=$HTTP_PROXY; get http://%[1]s/; get http://%[2]s/; get http://169.254.169.254/
unset http_proxy HTTP_PROXY; get http://%[1]s/; get http://10.0.2.2:%[3]s/; get http://172.17.0.1:%[3]s/
grep -c : /proc/net/dev; echo over`, site, other, site[strings.LastIndexByte(site, ':')+1:]))
	r.reaches(id, "done", "failed")
	out := strings.ReplaceAll(string(r.output(id)), "\r", "")
	port := site[strings.LastIndexByte(site, ':')+1:]
	want := fmt.Sprintf("listed=http://%[1]s/=0\n=http://%[2]s/=1\n=http://169.254.169.254/=1\n=http://%[1]s/=1\n=http://10.0.2.2:%[3]s/=1\n=http://172.17.0.1:%[3]s/=1\n1\nover\n", site, other, port)
	if out != want {
		r.t.Errorf("output %q, want %q", out, want)
	}
}
