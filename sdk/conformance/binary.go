package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// BinaryOptions say how a built plugin is checked.
type BinaryOptions struct {
	// Config makes the instance's configuration from the plugin's schema, as
	// the host would: a JSON object with every attribute. nil = the defaults.
	Config func(*pluginv1.ConfigSchema) ([]byte, error)
	// AgentBinary is the cell agent, airlock-cell; needed for a driver only.
	AgentBinary string
	// UID and GID are the workload's in the cells of a driver; 0 = 71234 as
	// root, the driver's own choice otherwise.
	UID, GID uint32
	// Network is as in Options.
	Network pluginv1.NetworkMode
	// Mission is what a runtime is asked to do.
	Mission *pluginv1.MissionSpec
	// Issuer is the other side of a revoker, and GrantRequest the request of a
	// grant.
	Issuer       Issuer
	GrantRequest json.RawMessage
	// Judge is what stands behind a policy plugin.
	Judge Judge
	// Env is added to the plugin's environment, NAME=VALUE.
	Env []string
	// Log takes what the plugin prints to standard error; nil = nowhere.
	Log io.Writer
	// AtOnce is as in Options.
	AtOnce int
	// Timeout bounds one check; 0 = a minute.
	Timeout time.Duration
	// Only names the checks to run; none = all.
	Only []string
	// Progress is called after every check; nil = nobody asks.
	Progress func(Check)
}

// Report is what came of all checks of a plugin.
type Report struct {
	// Plugin is the executable's name and the plugin's version.
	Plugin string `json:"plugin"`
	// Contract is what was checked against.
	Contract string `json:"contract"`
	// Checks are in the order in which they were run.
	Checks []Check `json:"checks"`
}

// Count is how many checks have a result.
func (r *Report) Count(result Result) (n int) {
	for _, c := range r.Checks {
		if c.Result == result {
			n++
		}
	}
	return n
}

// loadCheck is one check of a plugin as a program, whatever its kind.
type loadCheck struct {
	name string
	run  func(context.Context, *loader) error
}

// loader runs the checks of one built plugin.
type loader struct {
	path string
	opts BinaryOptions
	dir  string

	kind     string // "isolation", "runtime", "revoker", "policy"
	describe *pluginv1.DescribeResponse
	config   []byte
	log      lockedBuffer

	mu      sync.Mutex
	secrets [][]byte
	live    []*Process
}

// Binary checks a built plugin: first that it is a plugin at all, then all
// that its kind has to do. The error says why nothing could be checked; a check
// that fails is no error.
func Binary(ctx context.Context, path string, opts BinaryOptions) (*Report, error) {
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if st.IsDir() || st.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("%s is no program", path)
	}
	dir, err := os.MkdirTemp("", "alk")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	l := &loader{path: path, opts: opts, dir: dir}
	// The workload of a cell has another uid, and must get to its workspace.
	err = os.Chmod(dir, 0o711)
	for _, d := range []string{"state", "run", "s"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	if err != nil {
		return nil, err
	}
	defer l.end()
	return l.report(ctx), nil
}

func (l *loader) report(ctx context.Context) *Report {
	r := &Report{Plugin: filepath.Base(l.path), Contract: plugin.Contract}
	add := func(c Check) {
		r.Checks = append(r.Checks, c)
		if l.opts.Progress != nil {
			l.opts.Progress(c)
		}
	}
	for i, c := range slices.Concat(handshakeChecks(), describeChecks(), configChecks(), probeChecks()) {
		// Without the first one there is nothing to look at.
		if i > 0 && len(l.opts.Only) > 0 && !slices.Contains(l.opts.Only, c.name) {
			continue
		}
		got := l.check(ctx, c)
		if i > 0 || len(l.opts.Only) == 0 || slices.Contains(l.opts.Only, c.name) || got.Result == Fail {
			add(got)
		}
		if i == 0 && got.Result == Fail {
			return r
		}
	}
	if v := l.describe.GetVersion(); v != "" {
		r.Plugin += " " + v
	}
	l.kindChecks(ctx, add)
	if len(l.opts.Only) == 0 || slices.Contains(l.opts.Only, "secrets-not-in-log") {
		add(l.check(ctx, loadCheck{"secrets-not-in-log", secretsNotInLog}))
	}
	return r
}

// kindChecks runs the kit of the plugin's kind on a configured process.
func (l *loader) kindChecks(ctx context.Context, add func(Check)) {
	begin := loadCheck{l.kind + "-configured", func(ctx context.Context, l *loader) error {
		_, err := l.configured(ctx)
		return err
	}}
	defer l.end()
	startCtx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	p, err := l.configured(startCtx)
	cancel()
	if err != nil {
		got := Check{Name: begin.name, Result: Pass}
		got.settle(err)
		add(got)
		return
	}
	switch l.kind {
	case "isolation":
		o, err := l.isolationOptions(add)
		if err != nil {
			add(Check{Name: "cell-agent", Result: Fail, Detail: err.Error()})
			return
		}
		Isolation(ctx, pluginv1.NewIsolationClient(p.Conn), o)
	case "runtime":
		Runtime(ctx, pluginv1.NewRuntimeClient(p.Conn), l.runtimeOptions(add))
	case "revoker":
		l.revoker(ctx, p, add)
	case "policy":
		l.policy(ctx, p, add)
	}
}

func (l *loader) isolationOptions(add func(Check)) (Options, error) {
	o := Options{
		Dir: l.dir, HostID: hostID, Features: l.describe.GetFeatures(), UID: l.opts.UID, GID: l.opts.GID,
		Network: l.opts.Network, AtOnce: l.opts.AtOnce, Timeout: l.opts.Timeout, Only: l.opts.Only, Progress: add, secret: l.secret,
		Restart: func(ctx context.Context) (pluginv1.IsolationClient, error) {
			p, err := l.restarted(ctx)
			if err != nil {
				return nil, err
			}
			return pluginv1.NewIsolationClient(p.Conn), nil
		},
	}
	if o.UID == 0 && os.Geteuid() == 0 {
		o.UID, o.GID = 71234, 71234
	}
	var err error
	if o.AgentBinary, err = filepath.Abs(l.opts.AgentBinary); err != nil || l.opts.AgentBinary == "" {
		return o, errors.New("no cell agent was given: cells cannot be made without the program airlock-cell")
	}
	b, err := os.ReadFile(o.AgentBinary)
	if err != nil {
		return o, fmt.Errorf("the cell agent: %w", err)
	}
	sum := sha256.Sum256(b)
	o.AgentSHA256 = hex.EncodeToString(sum[:])
	return o, nil
}

func (l *loader) check(ctx context.Context, c loadCheck) Check {
	got := Check{Name: c.name, Result: Pass}
	begun := time.Now()
	checkCtx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	got.settle(c.run(checkCtx, l))
	l.end()
	got.Took = time.Since(begun)
	return got
}

const hostID = "conformance-host"

// launch starts a process that lives until the end of the check.
func (l *loader) launch(ctx context.Context, change func(*LaunchOptions)) (*Process, error) {
	o := LaunchOptions{Dir: filepath.Join(l.dir, "s"), Env: l.opts.Env, Log: &l.log}
	if l.opts.Log != nil {
		o.Log = io.MultiWriter(&l.log, l.opts.Log)
	}
	if change != nil {
		change(&o)
	}
	p, err := Launch(ctx, l.path, o)
	if err != nil {
		return nil, l.withLog(err)
	}
	l.mu.Lock()
	l.live = append(l.live, p)
	l.mu.Unlock()
	return p, nil
}

// withLog adds the plugin's last words.
func (l *loader) withLog(err error) error {
	if said := l.log.tail(400); said != "" {
		err = fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

// end kills every process of the check.
func (l *loader) end() {
	l.mu.Lock()
	live := l.live
	l.live = nil
	l.mu.Unlock()
	for _, p := range live {
		p.Kill()
	}
}

func (l *loader) restarted(ctx context.Context) (*Process, error) {
	l.end()
	return l.configured(ctx)
}

// configured starts a process and hands it its configuration.
func (l *loader) configured(ctx context.Context) (*Process, error) {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := l.configure(ctx, p, l.config); err != nil {
		return nil, l.withLog(err)
	}
	return p, nil
}

func (l *loader) configure(ctx context.Context, p *Process, config []byte) error {
	_, err := p.Plugin().Configure(ctx, &pluginv1.ConfigureRequest{
		Instance: "conformance", ConfigJson: config, StateDir: filepath.Join(l.dir, "state"), RunDir: filepath.Join(l.dir, "run"),
		HostVersion: "0.0.0-conformance", HostId: hostID,
	})
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

func (l *loader) secret(s []byte) {
	l.mu.Lock()
	l.secrets = append(l.secrets, bytes.Clone(s))
	l.mu.Unlock()
}

// secretsNotInLog looks through everything that the plugin has printed.
func secretsNotInLog(_ context.Context, l *loader) error {
	printed := l.log.bytes()
	l.mu.Lock()
	secrets := slices.Clone(l.secrets)
	l.mu.Unlock()
	for _, v := range l.configSecrets() {
		secrets = append(secrets, []byte(v))
	}
	for _, s := range secrets {
		if bytes.Contains(printed, s) || bytes.Contains(printed, []byte(hex.EncodeToString(s))) {
			return errors.New("the plugin's log holds a secret")
		}
	}
	return nil
}

// lockedBuffer keeps the last MiB of what is written to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if len(l.b) > 2<<20 {
		l.b = bytes.Clone(l.b[len(l.b)-1<<20:])
	}
	return len(p), nil
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b)
}

func (l *lockedBuffer) tail(n int) string {
	b := bytes.TrimSpace(l.bytes())
	return strings.ToValidUTF8(string(b[max(0, len(b)-n):]), "?")
}
