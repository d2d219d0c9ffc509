package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// noCore is a process that leaves no core file.
var noCore = regexp.MustCompile(`(?m)^Max core file size +0 +0 `)

// searchChunk is how much is read at once.
const searchChunk = 1 << 20

// holdsSecret says whether a secret is in what a reader gives from an offset on.
func holdsSecret(f io.ReaderAt, secret []byte, from, to int64) (found bool, looked int64) {
	buf := make([]byte, searchChunk+len(secret))
	keep := 0
	for from < to {
		n, err := f.ReadAt(buf[keep:keep+int(min(searchChunk, to-from))], from)
		if n == 0 {
			return false, looked
		}
		looked += int64(n)
		if bytes.Contains(buf[:keep+n], secret) {
			return true, looked
		}
		tail := min(len(secret)-1, keep+n)
		copy(buf, buf[keep+n-tail:keep+n])
		from, keep = from+int64(n), tail
		if err != nil && !errors.Is(err, io.EOF) {
			return false, looked
		}
	}
	return false, looked
}

// fileHolds searches a file's data and leaves its holes out: disks of VMs are
// large and empty.
func fileHolds(path string, secret []byte) bool {
	f, err := os.Open(path)
	if err != nil {
		return false // gone
	}
	defer f.Close()
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err != nil {
			return false
		}
		to, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			return false
		}
		if found, _ := holdsSecret(f, secret, from, to); found {
			return true
		}
		at = to
	}
}

// memoryHolds searches the memory that a process has in use, which is what a
// core file of it would hold. Pages of programs on disk are left out.
func memoryHolds(pid int, secret []byte) (found bool, looked int64) {
	proc := "/proc/" + strconv.Itoa(pid)
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		return false, 0
	}
	mem, err := os.Open(proc + "/mem")
	if err != nil {
		return false, 0
	}
	defer mem.Close()
	pages, err := os.Open(proc + "/pagemap")
	if err != nil {
		return false, 0
	}
	defer pages.Close()
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[1][0] != 'r' || f[1][1] != 'w' && f[4] != "0" || strings.Contains(line, "[v") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(f[0], "%x-%x", &from, &to); err != nil {
			continue
		}
		for _, run := range inUse(pages, from, to) {
			hit, n := holdsSecret(mem, secret, run[0], run[1])
			if looked += n; hit {
				return true, looked
			}
		}
	}
	return false, looked
}

// inUse are the runs of pages of a mapping that are in memory or swapped out.
func inUse(pagemap io.ReaderAt, from, to int64) (runs [][2]int64) {
	page := int64(os.Getpagesize())
	entries := make([]byte, 8*(to-from)/page)
	n, _ := pagemap.ReadAt(entries, 8*from/page)
	for i := 0; i+8 <= n; i += 8 {
		if binary.NativeEndian.Uint64(entries[i:])>>62 == 0 {
			continue
		}
		at := from + int64(i/8)*page
		if k := len(runs); k > 0 && runs[k-1][1] == at {
			runs[k-1][1] += page
		} else {
			runs = append(runs, [2]int64{at, at + page})
		}
	}
	return runs
}

// around are the processes of this rig but the host itself: what the host has
// started, and whatever has a uid of the range.
func (r *rig) around(uidFrom, uidTo int) (pids []int) {
	parent, uid := map[int]int{}, map[int]int{}
	list, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, p := range list {
		f, err := os.Open(p)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		for lines := bufio.NewScanner(f); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ":")
			if v := strings.Fields(value); name == "PPid" {
				parent[pid], _ = strconv.Atoi(v[0])
			} else if name == "Uid" {
				uid[pid], _ = strconv.Atoi(v[0])
			}
		}
		_ = f.Close()
	}
	for pid := range parent {
		below := false
		for p := parent[pid]; p > 1 && !below; p = parent[p] {
			below = p == r.cmd.Process.Pid
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		agent := bytes.HasPrefix(line, []byte("airlock-cell\x00")) || bytes.Contains(line, []byte("/airlock-cell\x00serve"))
		if below || agent || uid[pid] >= uidFrom && uid[pid] <= uidTo {
			pids = append(pids, pid)
		}
	}
	return pids
}

// secretNowhere looks for the provider's key in everything but the file that it
// is configured in and the host's own memory: memory of plugins, cells and VMs,
// every file that the host, its drivers and its cells have written, and what
// the host tells.
func (r *rig) secretNowhere(uidFrom, uidTo int, dirs []string, missions ...string) {
	r.t.Helper()
	secret := []byte(apiKey)
	if found, _ := memoryHolds(r.cmd.Process.Pid, secret); !found {
		r.t.Error("the key is not found where it is, in the host's memory: the search is worth nothing")
	}
	if limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.cmd.Process.Pid)); err != nil || !noCore.Match(limits) {
		r.t.Errorf("the host may leave a core file with the key in it: %v\n%s", err, limits)
	}
	total := int64(0)
	for _, pid := range r.around(uidFrom, uidTo) {
		found, looked := memoryHolds(pid, secret)
		if total += looked; found {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			r.t.Errorf("the key is in the memory of process %d: %q", pid, line)
		}
		if env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); bytes.Contains(env, secret) {
			r.t.Errorf("the key is in the environment of process %d", pid)
		}
	}
	if total < 64<<20 {
		r.t.Errorf("only %d bytes of memory were looked at", total)
	}
	for _, dir := range append(dirs, r.dir) {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			// The test's own program in a workspace has the key, since it looks for it.
			if err == nil && d.Type().IsRegular() && d.Name() != "in-cell" && fileHolds(path, secret) {
				r.t.Errorf("the key is in %s", path)
			}
			return nil // files come and go
		})
	}
	if strings.Contains(r.log.String(), apiKey) {
		r.t.Error("the key is in the host's log")
	}
	r.secretNotTold(missions...)
}

// secretNotTold looks for the key in what the host answers.
func (r *rig) secretNotTold(missions ...string) {
	r.t.Helper()
	paths := []string{"/livez", "/readyz", "/metrics", "/api/v1/aiwg/status", "/api/v1/agents", "/api/v1/plugins", "/api/v1/missions", "/api/v1/hitl"}
	for _, m := range missions {
		paths = append(paths, "/api/v1/missions/"+m, "/tasks/"+m+"/status", "/tasks/"+m+"/events?after=0", "/api/v1/sessions/"+escape(r.session(m))+"/log")
	}
	for _, p := range paths {
		resp, err := r.api.Get("http://localhost" + p)
		if err != nil {
			r.t.Error(err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || len(text) == 0 && p != "/livez" || bytes.Contains(text, []byte(apiKey)) {
			r.t.Errorf("%s: %d, %d bytes, with the key: %v", p, resp.StatusCode, len(text), bytes.Contains(text, []byte(apiKey)))
		}
	}
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"plugin", "inspect", "claude-code", "--json"}, {"debug", "bundle", "-o", "-"}} {
		text := r.airlock(args...)
		if args[0] == "debug" {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				r.t.Error(err)
				continue
			}
			text, _ = io.ReadAll(z)
		}
		if bytes.Contains(text, []byte(apiKey)) || len(text) == 0 {
			r.t.Errorf("airlock %v: %d bytes, with the key: %v", args, len(text), bytes.Contains(text, []byte(apiKey)))
		}
	}
}

// airlock runs the CLI against the rig's host.
func (r *rig) airlock(args ...string) []byte {
	r.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "AIRLOCK_ADDR="+filepath.Join(r.dir, "run", "airlock.sock"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		r.t.Errorf("airlock %v: %v\n%s", args, err, stderr.String())
	}
	return text
}

// TestASecretIsFoundWhereItIs tries the search out: in a file behind a hole, in
// a process's memory, and over the edge of two reads.
func TestASecretIsFoundWhereItIs(t *testing.T) {
	t.Parallel()
	secret := []byte("a-secret-that-is-" + strconv.Itoa(os.Getpid()))
	path := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8 << 30); err != nil { // nearly all of it is a hole
		t.Fatal(err)
	}
	filler := bytes.Repeat([]byte{1}, 4*searchChunk)
	if _, err := f.WriteAt(filler, 4<<30); err != nil {
		t.Fatal(err)
	}
	if fileHolds(path, secret) {
		t.Error("it is found before it is there")
	}
	copy(filler[searchChunk-5:], secret)
	if _, err := f.WriteAt(filler, 4<<30); err != nil {
		t.Fatal(err)
	}
	if !fileHolds(path, secret) {
		t.Error("it is not found in a file")
	}
	cmd := exec.Command("/bin/sh", "-c", `read x; read y`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Signal(syscall.SIGKILL); _ = cmd.Wait() }()
	if found, _ := memoryHolds(cmd.Process.Pid, secret); found {
		t.Error("it is found in a process that does not know it")
	}
	if _, err := fmt.Fprintf(in, "%s\n", secret); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, log: &lockedBuffer{}}
	r.until("it is found in a process", func() bool { found, _ := memoryHolds(cmd.Process.Pid, secret); return found })
}
