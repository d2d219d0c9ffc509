package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

func linkChecks() []isolationCheck {
	return []isolationCheck{
		{"link-in-its-directory", "", linkPlace},
		{"link-wrong-secret-refused", "", linkSecret},
		{"link-reconnect", "", linkReconnect},
		{"link-protected", "", linkProtected},
		{"secrets-not-in-environ-of-others", "", secretsInside},
	}
}

func linkPlace(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if got, wanted := p.cell.GetLink(), filepath.Join(p.spec.GetLinkDir(), "link.sock"); filepath.Clean(got) != wanted {
		return fmt.Errorf("cell.link is %s, not %s", got, wanted)
	}
	st, err := os.Stat(p.cell.GetLink())
	if err != nil {
		return err
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is no socket (%v)", p.cell.GetLink(), st.Mode())
	}
	return nil
}

func linkSecret(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	wrong := bytes.Clone(p.spec.GetLinkSecret())
	wrong[0] ^= 1
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	conn, err := cell.Dial(short, p.cell.GetLink(), wrong)
	cancel()
	if err == nil {
		_ = conn.Close()
		return errors.New("the cell agent opens to another secret than the cell's")
	}
	_, err = p.sh(ctx, "true")
	return err
}

// linkReconnect: the cell agent outlives its connections.
func linkReconnect(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.start(ctx, beat("b")); err != nil {
		return err
	}
	for range 5 {
		_ = p.conn.Close()
		if err := p.dial(ctx); err != nil {
			return err
		}
		if err := p.awaitBeat(ctx, "b"); err != nil {
			return err
		}
	}
	return nil
}

// linkProtected: a workload with a uid of its own reaches neither the socket
// nor the memory of the agent.
func linkProtected(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if p.cell.GetFacts().GetLink() == pluginv1.LinkProtection_LINK_PROTECTION_UNPROTECTED {
		return notDeclared("facts.link is unprotected")
	}
	out, err := p.sh(ctx, `
		for dir in '`+p.spec.GetLinkDir()+`' /run/airlock /link /airlock; do
			ls $dir/link.sock 2>/dev/null && echo "the socket in $dir"
		done
		for pid in $PPID 1; do
			head -c 1 /proc/$pid/mem >/dev/null 2>&1 && echo "the memory of $pid"
			ls /proc/$pid/fd >/dev/null 2>&1 && echo "the descriptors of $pid"
			kill -0 $pid 2>/dev/null && echo "a signal to $pid"
		done
		true`)
	if err == nil && out != "" {
		err = fmt.Errorf("facts.link is protected, and the workload reaches %q", out)
	}
	return err
}

// secretsInside looks at everything that the workload can read of processes.
func secretsInside(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true")
	if err != nil {
		return err
	}
	seen, _, err := s.streams(ctx)
	if err != nil {
		return err
	}
	secret := p.spec.GetLinkSecret()
	for form, b := range map[string][]byte{
		"raw": secret, "hex": []byte(hex.EncodeToString(secret)), "base64": []byte(base64.StdEncoding.EncodeToString(secret)),
	} {
		if bytes.Contains(seen, b) {
			return fmt.Errorf("the link secret (%s) is in an environment or a command line", form)
		}
	}
	return nil
}

func touch(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name), nil, 0o644)
}
