package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func outputChecks() []isolationCheck {
	return []isolationCheck{
		{"output-bytes-exact", "", outputExact},
		{"output-binary-safe", "", outputBinary},
		{"output-no-trailing-loss-on-exit", "", outputTail},
		{"output-large", "", outputLarge},
		{"output-order-per-stream", "", outputOrder},
		{"output-from-offset", "", outputOffset},
		{"output-survives-plugin-restart", "", outputSurvives},
	}
}

// streams reads both streams of a session to the end, apart from each other.
func (s *session) streams(ctx context.Context) (stdout, stderr []byte, err error) {
	r, err := s.place.conn.ReadOutput(ctx, s.id, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("read output: %w", err)
	}
	defer r.Close()
	var next uint64
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && f.GetEnd() != nil {
			return stdout, stderr, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read output: %w", err)
		}
		d := f.GetData()
		if d == nil || d.GetOffset() != next {
			return nil, nil, fmt.Errorf("after offset %d comes %.80v", next, f)
		}
		next += uint64(len(d.GetData()))
		if d.GetStream() == cellv1.Stream_STREAM_STDERR {
			stderr = append(stderr, d.GetData()...)
		} else {
			stdout = append(stdout, d.GetData()...)
		}
	}
}

func outputExact(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "printf 'out\\twith no end'; printf 'err\\n\\n' >&2")
	if err != nil {
		return err
	}
	out, errs, err := s.streams(ctx)
	if err == nil && (string(out) != "out\twith no end" || string(errs) != "err\n\n") {
		err = fmt.Errorf("standard output is %q, standard error %q", out, errs)
	}
	return err
}

func outputBinary(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	all := make([]byte, 0, 64<<10)
	for i := range cap(all) {
		all = append(all, byte(i), byte(i>>8))
	}
	if err := os.WriteFile(filepath.Join(p.work, "bytes"), all, 0o644); err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "cat bytes")
	if err != nil {
		return err
	}
	out, _, err := s.streams(ctx)
	if err == nil && !bytes.Equal(out, all) {
		err = fmt.Errorf("%d bytes of every value came as %d bytes, not the same", len(all), len(out))
	}
	return err
}

// outputTail: the last bytes before an exit are not lost, many times.
func outputTail(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	for i := range 20 {
		out, err := p.sh(ctx, fmt.Sprintf("head -c 5000 /dev/zero; printf last-%d", i))
		if err != nil {
			return err
		}
		if len(out) != 5000+len(fmt.Sprintf("last-%d", i)) || !strings.HasSuffix(out, fmt.Sprintf("last-%d", i)) {
			return fmt.Errorf("of 5,000 bytes and a last word came %d bytes, with the end %.20q", len(out), out[max(0, len(out)-20):])
		}
	}
	return nil
}

// outputLarge reads more than the agent holds, so that the session has to wait.
func outputLarge(ctx context.Context, k *kit) error {
	const size = 24 << 20
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, fmt.Sprintf("yes 0123456789abcde | head -c %d", size))
	if err != nil {
		return err
	}
	r, err := p.conn.ReadOutput(ctx, s.id, 0)
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	defer r.Close()
	got, wanted := sha256.New(), sha256.New()
	var n uint64
	for acked := uint64(0); ; {
		f, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && f.GetEnd() != nil {
			break
		}
		if err != nil {
			return fmt.Errorf("read output: %w", err)
		}
		if f.GetGap() != nil {
			return fmt.Errorf("output was dropped: %v", f.GetGap())
		}
		_, _ = got.Write(f.GetData().GetData())
		n += uint64(len(f.GetData().GetData()))
		if n-acked > 1<<20 {
			if err := p.conn.Ack(ctx, s.id, n); err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
			acked = n
		}
	}
	line := []byte("0123456789abcde\n")
	for range size / len(line) {
		_, _ = wanted.Write(line)
	}
	if n != size || !bytes.Equal(got.Sum(nil), wanted.Sum(nil)) {
		return fmt.Errorf("%d bytes came of %d, or not the same ones", n, size)
	}
	return nil
}

func outputOrder(ctx context.Context, k *kit) error {
	const n = 2000
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo o$i; echo e$i >&2; i=$((i+1)); done", n))
	if err != nil {
		return err
	}
	out, errs, err := s.streams(ctx)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"o": string(out), "e": string(errs)} {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(lines) != n {
			return fmt.Errorf("%d lines of stream %s came of %d", len(lines), name, n)
		}
		for i, l := range lines {
			if l != fmt.Sprintf("%s%d", name, i) {
				return fmt.Errorf("line %d of stream %s is %q", i, name, l)
			}
		}
	}
	return nil
}

// outputOffset reads a part again, as the host does after it lost the link.
func outputOffset(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "printf 0123456789")
	if err != nil {
		return err
	}
	if _, _, err := s.finish(ctx); err != nil {
		return err
	}
	if err := p.dial(ctx); err != nil {
		return fmt.Errorf("a second connection: %w", err)
	}
	r, err := p.conn.ReadOutput(ctx, s.id, 4)
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	defer r.Close()
	f, err := r.Next()
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	if f.GetData().GetOffset() != 4 || string(f.GetData().GetData()) != "456789" {
		return fmt.Errorf("from offset 4 of 0123456789 comes %v", f)
	}
	return nil
}

// outputSurvives: what was written while the plugin was away is there.
func outputSurvives(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after; exit 9")
	if err != nil {
		return err
	}
	if err := k.restart(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.work, "go"), nil, 0o644); err != nil {
		return err
	}
	r, err := k.client.Recover(ctx, &pluginv1.RecoverRequest{Ref: p.cell.GetRef()})
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	p.cell = r.GetCell()
	if err := p.dial(ctx); err != nil {
		return err
	}
	out, err := s.output(ctx)
	if err == nil && out != "before\nafter\n" {
		err = fmt.Errorf("after a restart of the plugin the output is %q", out)
	}
	return err
}

func (p *place) exists(name string) bool {
	_, err := os.Stat(filepath.Join(p.work, name))
	return err == nil
}
