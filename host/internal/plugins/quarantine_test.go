package plugins

import (
	"context"
	"encoding/binary"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
)

// TestEveryBadPluginHasItsOwnMessage is F5: what the operator reads, for each
// way in which a plugin can fail to come up. <PATH>, <DIR> and <LOCK> stand
// for the real ones.
func TestEveryBadPluginHasItsOwnMessage(t *testing.T) {
	t.Parallel()
	misfit := func(way string) func(*rig) { return func(r *rig) { r.install("misfit", "airlock-isolation-"+way) } }
	for name, c := range map[string]struct {
		driver  string
		prepare func(*rig)
		code    Code
		reason  string // a regular expression for all of it
	}{
		"missing": {"absent", func(*rig) {}, NotFound,
			`there is no executable airlock-isolation-absent in <DIR>: install the package airlock-isolation-absent, or the plugin's executable by hand, or correct plugins\.dir`},
		"mistyped": {"dokcer", func(r *rig) {
			r.write("airlock-isolation-docker", []byte("x"), 0o755)
			r.write("airlock-runtime-dokce", []byte("x"), 0o755)
		}, NotFound,
			`there is no executable airlock-isolation-dokcer in <DIR> \(did you mean "docker"\?\): install the package airlock-isolation-dokcer, or the plugin's executable by hand, or correct plugins\.dir`},
		"path traversal": {"a/../../b", func(*rig) {}, NotFound,
			`"a/\.\./\.\./b" is no plugin name: use lower-case letters, digits, - and _`},
		"not executable": {"plain", func(r *rig) { r.write("airlock-isolation-plain", []byte("\x7fELF"), 0o644) }, NotExecutable,
			`<PATH> is not executable \(mode -rw-r--r--\): chmod 0755 it`},
		"empty": {"empty", func(r *rig) { r.write("airlock-isolation-empty", nil, 0o755) }, NotExecutable,
			`<PATH> is empty: install it again`},
		"no program": {"text", func(r *rig) { r.write("airlock-isolation-text", []byte("hello \x1b[31m"), 0o755) }, NotExecutable,
			`<PATH> is no program: it begins with "hello \\\\x1b\[31m": install the plugin's executable for linux/amd64`},
		"directory": {"dir", func(r *rig) { _ = os.Mkdir(r.dir+"/airlock-isolation-dir", 0o755) }, NotExecutable,
			`<PATH> is not a file \(mode drwxr-xr-x\)`},
		"no interpreter": {"script", func(r *rig) {
			r.write("airlock-isolation-script", []byte("#!/no/such/interpreter\n"), 0o755)
		}, NotExecutable, `<PATH> needs an interpreter or loader that this machine does not have: install what it needs, or a static build`},
		"truncated program": {"cut", func(r *rig) {
			data, _ := os.ReadFile(built.path(r.t, "misfit"))
			r.write("airlock-isolation-cut", data[:64], 0o755)
		}, NotExecutable, `the kernel does not run <PATH>: install it again`},
		"wrong arch": {"arm", func(r *rig) { r.write("airlock-isolation-arm", otherArch(t), 0o755) }, WrongArch,
			`<PATH> is built for arm64, this host is amd64: install the plugin's build for linux/amd64`},
		"writable by others": {"open", func(r *rig) {
			r.install("misfit", "airlock-isolation-open")
			_ = os.Chmod(r.dir+"/airlock-isolation-open", 0o757)
		}, Unsafe, `<PATH> can be changed by others \(mode -rwxr-xrwx\): chmod go-w it`},
		"directory writable by others": {"open", func(r *rig) {
			r.install("misfit", "airlock-isolation-open")
			_ = os.Chmod(r.dir, 0o777)
		}, Unsafe, `<DIR> can be changed by others \(mode drwxrwxrwx\): chmod go-w it`},
		"not in the lock": {"unlocked", func(r *rig) {
			r.install("misfit", "airlock-isolation-unlocked")
			_ = WriteLock(r.lock, map[string]string{"airlock-isolation-other": strings.Repeat("0", 64)})
		}, NotLocked, "airlock-isolation-unlocked is not in the lock file <LOCK>: if you trust <PATH>, run `airlock plugin lock`"},
		"wrong checksum": {"changed", func(r *rig) {
			r.install("misfit", "airlock-isolation-changed")
			_ = WriteLock(r.lock, map[string]string{"airlock-isolation-changed": strings.Repeat("0", 64)})
		}, WrongChecksum, "the sha256 of <PATH> is [0-9a-f]{64}, but the lock file <LOCK> says 0{64}: put the locked build back, or run `airlock plugin lock` if you trust this one"},
		"broken lock": {"locked", func(r *rig) {
			r.install("misfit", "airlock-isolation-locked")
			_ = os.WriteFile(r.lock, []byte("plugin \"a\" {\n  sha256 = \n}\n"), 0o644)
		}, LockUnusable, "the lock file <LOCK> cannot be used, so no plugin may run: <LOCK>:2,12-3,1: Invalid expression; .*: repair it, or write it anew with `airlock plugin lock`"},
		"exits early": {"exits-early", misfit("exits-early"), ExitsEarly,
			`<PATH> ended before its handshake \(exit code 3\); its last words: "no engine at /var/run/engine\.sock\\\\x1b\[31m"`},
		"killed early": {"killed-early", misfit("killed-early"), ExitsEarly,
			`<PATH> ended before its handshake \(signal 9, killed\)`},
		"leaves a child": {"leaves-child", misfit("leaves-child"), ExitsEarly,
			`<PATH> ended before its handshake \(exit code 4\)`},
		"junk on stdout": {"junk", misfit("junk"), Junk,
			`<PATH> printed "Welcome to \\\\x1b\[31mthe plugin!" to standard output before its handshake: a plugin prints nothing there; report it to its author`},
		"script with junk": {"shell", func(r *rig) {
			r.write("airlock-isolation-shell", []byte("#!/bin/sh\necho \"I am $0\" | cut -c1-11\nexec sleep 60\n"), 0o755)
		}, Junk, `<PATH> printed "I am /proc/" to standard output .*`},
		"never prints": {"silent", misfit("silent"), StartTimeout,
			`<PATH> printed no handshake within 3s: it is no Airlock plugin, or it hangs before it serves; its last words: "waiting for a licence server"`},
		"half a line":   {"half-line", misfit("half-line"), WrongProtocol, `<PATH> does not serve gRPC: .*`},
		"closes stdout": {"closes-stdout", misfit("closes-stdout"), Junk, `<PATH> closed its standard output before its handshake`},
		"wrong magic": {"wrong-magic", misfit("wrong-magic"), WrongMagic,
			`<PATH> does not know this host's magic cookie: it was built for another program, or for another version of Airlock`},
		"wrong core protocol": {"wrong-core", misfit("wrong-core"), WrongProtocol,
			`<PATH> speaks version 7 of go-plugin's core protocol, this host speaks 1: use a build of the plugin for this version of Airlock`},
		"wrong protocol": {"wrong-protocol", misfit("wrong-protocol"), WrongProtocol,
			`<PATH> speaks version 99 of the plugin protocol, this host speaks 1: use a build of the plugin for this version of Airlock`},
		"no TLS": {"no-tls", misfit("no-tls"), WrongProtocol,
			`<PATH> gave no certificate, so nobody can tell that it is the one that answers: .*`},
		"socket elsewhere": {"foreign-socket", misfit("foreign-socket"), WrongProtocol,
			`<PATH> listens on unix /tmp/elsewhere instead of a unix socket in PLUGIN_UNIX_SOCKET_DIR: .*`},
		"stops after the handshake": {"stops-after-handshake", misfit("stops-after-handshake"), StartTimeout,
			`<PATH> gave its handshake and then did not answer within 3s`},
		"wrong kind": {"wrong-kind", misfit("wrong-kind"), WrongKind,
			`<PATH> says that it is of kind "revoker": its file must be called airlock-revoker-fake`},
		"wrong name": {"wrong-name", misfit("wrong-name"), WrongName,
			`<PATH> says that its name is "something\\\\x1b\[0m-else": its file must be called airlock-isolation-something\\x1b\[0m-else`},
		"wrong contract": {"wrong-contract", misfit("wrong-contract"), WrongContract,
			`<PATH> speaks \["airlock\.plugin\.v9"\], this host speaks airlock\.plugin\.v1: upgrade the older of the two`},
		"dies in Describe": {"dies-in-describe", misfit("dies-in-describe"), ExitsEarly,
			`<PATH> ended while it was asked what it is \(exit code 9\)`},
		"dies in Configure": {"dies-in-configure", misfit("dies-in-configure"), ExitsEarly,
			`<PATH> ended while it was being configured \(exit code 2\); its last words: "panic: configure is not for me" \| .*`},
		"killed in Configure": {"killed-in-configure", misfit("killed-in-configure"), ExitsEarly,
			`<PATH> ended while it was being configured \(signal 9, killed\)`},
		"refuses its config": {"refuses", misfit("refuses"), Refused,
			`<PATH> refused its config: the engine is too old\\x0asecond line \(FailedPrecondition\)`},
		"invalid config": {"invalid", func(r *rig) {
			r.install("misfit", "airlock-isolation-invalid")
			r.configure("isolation.invalid.x", map[string]any{"faults": []string{"Create=explode"}})
		}, InvalidConfig, `airlock\.hcl:10,1-20: Unknown fault; fault "explode" of Create is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Deadlines.Start = 3 * time.Second; o.Deadlines.Describe = 20 * time.Second })
			c.prepare(r)
			ref := "isolation." + c.driver + ".x"
			spec := config.Instance{Kind: config.KindIsolation, Driver: c.driver, Name: "x", Body: hcl.EmptyBody(), Range: specs("a.b.c")[0].Range}
			r.Start(context.Background(), []config.Instance{spec})
			s := r.status(ref)
			want := strings.NewReplacer(
				"<PATH>", regexp.QuoteMeta(r.dir+"/airlock-isolation-"+c.driver),
				"<DIR>", regexp.QuoteMeta(r.dir), "<LOCK>", regexp.QuoteMeta(r.lock),
			).Replace(c.reason)
			if s.State != Quarantined || s.Code != c.code || !regexp.MustCompile("^"+want+"$").MatchString(s.Reason) {
				t.Errorf("it is %s (%s): %s\nwant %s matching %s", s.State, s.Code, s.Reason, c.code, want)
			}
			if _, err := r.Isolation(ref); err == nil || !strings.Contains(err.Error(), s.Reason) {
				t.Errorf("Isolation says %v, want the reason", err)
			}
			if _, err := r.Capabilities(ref); err == nil {
				t.Error("a quarantined instance has capabilities")
			}
		})
	}
}

// otherArch is the head of a program for arm64.
func otherArch(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(built.path(t, "misfit"))
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(data[18:], 183) // EM_AARCH64
	return data[:4096]
}

func TestABadPluginDoesNotKeepOthersFromStarting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("misfit", "airlock-isolation-exits-early")
	r.install("driver", "airlock-isolation-good")
	r.start("isolation.exits-early.bad", "isolation.good.a", "runtime.absent.b")
	if s := r.status("isolation.good.a"); s.State != Healthy {
		t.Errorf("the good one is %s: %s", s.State, s.Reason)
	}
	for _, ref := range []string{"isolation.exits-early.bad", "runtime.absent.b"} {
		if s := r.status(ref); s.State != Quarantined {
			t.Errorf("%s is %s: %s", ref, s.State, s.Reason)
		}
	}
}

func TestAPassingCauseIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Deadlines.Requeue = 50 * time.Millisecond })
	r.install("misfit", "airlock-isolation-exits-early")
	r.start("isolation.exits-early.x")
	if s := r.status("isolation.exits-early.x"); s.RetryAt == nil {
		t.Fatalf("no time for the next try: %+v", s)
	}
	r.install("driver", "airlock-isolation-exits-early")
	r.await("isolation.exits-early.x", "recovery", healthy)
}
