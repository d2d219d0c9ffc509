package packages

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/qemutest"
)

// steps are those of testdata/guest.sh, in their order.
var steps = []string{"boot", "install", "init", "start", "mission", "control-room", "kill-9", "stop", "upgrade", "downgrade-refused", "remove", "purge", "setup-on-a-clean-root", "setup-of-a-broken-install"}

// An operator's life with the packages, in a VM that is booted with systemd and
// cgroup v2 (ruling 50): install, init, start, a mission, the Control Room, stop,
// upgrade with a mission that runs, a downgrade that is refused, remove, purge;
// and the steps of setup.aiwg.yaml on the clean root and on a broken install.
func TestInstalledWithSystemd(t *testing.T) {
	t.Parallel()
	image, err := qemutest.Build()
	need(t, err)
	cache, err := qemutest.CacheDir()
	need(t, err)
	script, err := os.ReadFile("../../hack/test-deps.d/systemd.sh")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(script)
	root := filepath.Join(cache, fmt.Sprintf("systemd-root-%x.ext4", sum[:8]))
	_, err = os.Stat(root)
	need(t, err)
	setup := readManifest(t)
	before, err := oldPackages()
	need(t, err)
	after, err := newPackages()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	initrd := filepath.Join(dir, "initrd")
	if err := makeInitrd(initrd, image.Dir); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "work.tar")
	if err := makeDisk(disk, before, after, setup.plan()); err != nil {
		t.Fatal(err)
	}
	said := boot(t, image.QEMU, filepath.Join(image.Dir, "vmlinux"), initrd, root, disk)
	done := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ci: ok (\S+) \((\d+) s\)`).FindAllStringSubmatch(said, -1) {
		done[m[1]] = m[2]
	}
	for _, step := range steps {
		if s, ok := done[step]; ok {
			t.Logf("%s: %s s", step, s)
		} else {
			t.Errorf("the step %s was not done", step)
		}
	}
	if t.Failed() || !strings.Contains(said, "ci: done") {
		t.Errorf("the VM said:\n%s", said)
	}
}

// boot runs the VM to its end and gives what came over the serial port. Without
// AVX the programs hash in code that is emulated faster.
func boot(t *testing.T, qemu, kernel, initrd, root, disk string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 28*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-name", "airlock-packages", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "q35,usb=off,vmport=off,dump-guest-core=off", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,-avx,-avx2", "-smp", "2", "-m", "1024M",
		"-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet loglevel=3 panic=-1 random.trust_cpu=on systemd.show_status=0 systemd.log_level=warning "+
			"mitigations=off cryptomgr.notests no_timer_check noreplace-smp tsc=reliable",
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file="+root, "-device", "virtio-blk-pci,drive=root",
		"-drive", "if=none,id=work,format=raw,readonly=on,file="+disk, "-device", "virtio-blk-pci,drive=work",
		"-serial", "stdio")
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(disk)) // of the root's snapshot
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	serial, err := os.Create(filepath.Join(work, "serial.log")) // to look at while it runs
	if err != nil {
		t.Fatal(err)
	}
	defer serial.Close()
	cmd.Stdout = io.MultiWriter(&said, serial)
	cmd.Stderr = cmd.Stdout
	start := time.Now()
	err = cmd.Run()
	t.Logf("the VM ran for %v", time.Since(start).Round(time.Second))
	if cmd.ProcessState != nil {
		t.Logf("and used %v of processor time", (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(time.Second))
	}
	if err != nil {
		t.Errorf("QEMU: %v", err)
	}
	return strings.ReplaceAll(said.String(), "\r", "")
}

// makeInitrd makes the first file system: a static busybox, the modules of the
// disks, and testdata/init.
func makeInitrd(to, image string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	script := fmt.Sprintf(`set -e; d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; mkdir "$d/bin" "$d/dev" "$d/root"
cp %[1]q "$d/bin/busybox"; cp testdata/init "$d/init"; chmod 755 "$d/init"; cp -R %[2]q "$d/modules"
(cd "$d" && find . | "$d/bin/busybox" cpio -o -H newc) >%[3]q 2>/dev/null`, busybox, filepath.Join(image, "modules"), to)
	if text, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("make the initrd: %w: %s", err, text)
	}
	return nil
}

// makeDisk makes the tar that the VM reads as its second disk: the packages, a
// busybox for its wget, the steps of setup.aiwg.yaml, and the script with what it
// must know.
func makeDisk(to, before, after, plan string) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	add := func(name string, mode int64, text []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	}
	files := map[string]string{}
	for folder, dir := range map[string]string{"old": before, "new": after} {
		for _, name := range append(strings.Fields(inGuest), "") {
			pattern := "airlock_*.deb"
			if name != "" {
				pattern = "airlock-" + name + "_*.deb"
			}
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return err
			}
			if len(found) != 1 {
				return fmt.Errorf("%s in %s: %v", pattern, dir, found)
			}
			files[folder+"/"+filepath.Base(found[0])] = found[0]
		}
	}
	files["new/SHA256SUMS"] = filepath.Join(after, "SHA256SUMS")
	scripts, err := filepath.Glob("../../setup/*.sh")
	if err != nil || len(scripts) == 0 {
		return fmt.Errorf("setup/*.sh: %v, %w", scripts, err)
	}
	for _, file := range scripts {
		files["setup/"+filepath.Base(file)] = file
	}
	if files["busybox"], err = exec.LookPath("busybox"); err != nil {
		return err
	}
	for name, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := add(name, 0o755, text); err != nil {
			return err
		}
	}
	if err := add("plan", 0o644, []byte(plan)); err != nil {
		return err
	}
	script, err := os.ReadFile("testdata/guest.sh")
	if err != nil {
		return err
	}
	// The store's version as printf's octal; its newer one is 99.
	known := fmt.Sprintf("OLD=%s\nNEW=%s\nSCHEMA=%s\n", oldVersion, newVersion, strconv.FormatInt(int64(store.Schema()), 8))
	head, rest, _ := strings.Cut(string(script), "\nset -eu\n")
	if err := add("guest.sh", 0o755, []byte(head+"\nset -eu\n"+known+rest)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(out, strings.Repeat("\x00", 512))
	return err
}
