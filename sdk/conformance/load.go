package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

func handshakeChecks() []loadCheck {
	return []loadCheck{
		{"handshake", handshake},
		{"version-negotiation", versions},
		{"handshake-needs-cookie", cookie},
		{"mutual-tls", mutualTLS},
		{"no-stdout-pollution", stdoutClean},
		{"env-not-required", bareEnv},
		{"signals-ignored", signalsIgnored},
	}
}

func describeChecks() []loadCheck {
	return []loadCheck{
		{"describe-complete", describeComplete},
		{"describe-matches-file", describeFile},
		{"describe-immediate", describeImmediate},
		{"capability-declared", capabilityDeclared},
		{"features-known", featuresKnown},
	}
}

// handshake is the first check: it learns what the plugin is.
func handshake(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	if l.describe, err = p.Plugin().Describe(ctx, &pluginv1.DescribeRequest{}); err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	l.kind = strings.ToLower(strings.TrimPrefix(l.describe.GetKind().String(), "KIND_"))
	if !slices.Contains([]string{"isolation", "runtime", "revoker", "policy"}, l.kind) {
		return fmt.Errorf("it says that its kind is %v, for which there are no checks", l.describe.GetKind())
	}
	if l.opts.Config == nil {
		l.config = defaultConfig(l.describe.GetSchema())
		return nil
	}
	if l.config, err = l.opts.Config(l.describe.GetSchema()); err != nil {
		return fmt.Errorf("the given configuration: %w", err)
	}
	return nil
}

func versions(_ context.Context, l *loader) error {
	if !slices.Contains(l.describe.GetContracts(), plugin.Contract) {
		return fmt.Errorf("it speaks %q, not %s", l.describe.GetContracts(), plugin.Contract)
	}
	return nil
}

// cookie: started by a person it says so, and serves nothing.
func cookie(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, func(o *LaunchOptions) { o.noCookie = true })
	if err == nil {
		return fmt.Errorf("without %s in its environment it serves all the same (%.80q)", plugin.MagicCookieKey, p.Handshake)
	}
	if errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "no handshake within") {
		return fmt.Errorf("without %s in its environment it does not end", plugin.MagicCookieKey)
	}
	return nil
}

func mutualTLS(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	other, _, err := plugin.NewCertificate()
	if err != nil {
		return err
	}
	for what, creds := range map[string]credentials.TransportCredentials{
		"without TLS":                insecure.NewCredentials(),
		"without a certificate":      credentials.NewTLS(p.tls()),
		"with somebody else's":       credentials.NewTLS(p.tls(other)),
		"with the plugin's own name": credentials.NewTLS(p.tls(*p.cert)),
	} {
		conn, err := p.dial(creds)
		if err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err = pluginv1.NewPluginClient(conn).Describe(short, &pluginv1.DescribeRequest{})
		cancel()
		_ = conn.Close()
		if err == nil {
			return fmt.Errorf("it answers to a caller %s", what)
		}
	}
	if _, err := p.Plugin().Describe(ctx, &pluginv1.DescribeRequest{}); err != nil {
		return fmt.Errorf("after callers that it must refuse, it does not answer its host: %w", err)
	}
	return nil
}

// stdoutClean: nothing but the handshake may reach the host there.
func stdoutClean(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	if _, err := p.Plugin().Describe(ctx, &pluginv1.DescribeRequest{}); err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	if _, err := health(ctx, p); err != nil {
		return err
	}
	_, _ = p.Plugin().Shutdown(ctx, &pluginv1.ShutdownRequest{})
	p.Kill()
	if rest := p.Stdout(); rest != "" {
		return fmt.Errorf("behind the handshake it printed %.200q to standard output", rest)
	}
	return nil
}

// bareEnv: a host gives PATH and little more; HOME, USER, TMPDIR are not there.
func bareEnv(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, func(o *LaunchOptions) { o.bare = true })
	if err != nil {
		return err
	}
	if err := l.configure(ctx, p, l.config); err != nil {
		return fmt.Errorf("with nothing but PATH in its environment: %w", err)
	}
	return nil
}

// signalsIgnored: ^C at the terminal of the host is the host's to handle.
func signalsIgnored(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGPIPE} {
		if err := p.cmd.Process.Signal(sig); err != nil {
			return err
		}
		if err := rest(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		if _, err := p.Plugin().Describe(ctx, &pluginv1.DescribeRequest{}); err != nil {
			return fmt.Errorf("after %v it does not answer: %w", sig, err)
		}
	}
	return nil
}

var semver = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func describeComplete(_ context.Context, l *loader) error {
	d := l.describe
	switch {
	case d.GetName() == "":
		return errors.New("it has no name")
	case !semver.MatchString(d.GetVersion()):
		return fmt.Errorf("its version %q is not a semantic version without a leading v", d.GetVersion())
	case strings.TrimSpace(d.GetSummary()) == "":
		return errors.New("it has no summary")
	}
	for _, n := range d.GetNeeds() {
		if n.GetWhat() == "" || n.GetValue() == "" || n.GetReason() == "" {
			return fmt.Errorf("the need %v lacks what, value or reason", n)
		}
	}
	return nil
}

func describeFile(_ context.Context, l *loader) error {
	wanted := "airlock-" + l.kind + "-" + l.describe.GetName()
	if got := filepath.Base(l.path); got != wanted {
		return fmt.Errorf("its file is called %s; a host looks for %s", got, wanted)
	}
	return nil
}

func describeImmediate(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	best := time.Hour // of several: a loaded machine is not the plugin's fault
	for range 3 {
		begun := time.Now()
		if _, err := p.Plugin().Describe(ctx, &pluginv1.DescribeRequest{}); err != nil {
			return fmt.Errorf("describe: %w", err)
		}
		best = min(best, time.Since(begun))
	}
	if best > time.Second {
		return fmt.Errorf("describe takes %v", best)
	}
	return nil
}

func capabilityDeclared(_ context.Context, l *loader) error {
	if l.kind == "revoker" || l.kind == "policy" {
		return nil // they advertise nothing
	}
	found := false
	capabilityWord := regexp.MustCompile(`^[a-z0-9][a-z0-9:._-]*$`)
	for _, c := range l.describe.GetCapabilities() {
		if !capabilityWord.MatchString(c) {
			return fmt.Errorf("the capability %q is not made of a-z, 0-9, :, ., _ and -", c)
		}
		found = found || strings.HasPrefix(c, l.kind+":")
	}
	if !found {
		return fmt.Errorf("none of its capabilities %q begins with %s: and says what it is", l.describe.GetCapabilities(), l.kind)
	}
	return nil
}

func featuresKnown(_ context.Context, l *loader) error {
	known := map[string][]string{"isolation": {"pause", "checkpoint"}, "revoker": {"grants"}}
	for _, f := range l.describe.GetFeatures() {
		if !slices.Contains(known[l.kind], f) {
			return fmt.Errorf("there is no feature %q for this kind; there are %q", f, known[l.kind])
		}
	}
	return nil
}
