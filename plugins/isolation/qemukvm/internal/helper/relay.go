package helper

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
)

type rawBuffer struct{ bytes []byte }

func (b *rawBuffer) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// relay carries the cell link. A port has one connection at a time, the link's
// socket may have a new one while the host has not noticed yet that the old one
// is dead: the newest wins, and what was before it is cut on both sides.
func (v *vm) relay(ctx context.Context, listener net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	end := func() {}
	defer func() { end() }()
	for {
		host, err := listener.Accept()
		if err != nil {
			return
		}
		end()
		wg.Wait()
		port, err := v.reach(ctx, LinkSocket)
		if err != nil {
			_ = host.Close()
			return // there is no VM
		}
		end = sync.OnceFunc(func() {
			_ = host.Close()
			_ = port.Close()
		})
		done := end
		stop := context.AfterFunc(ctx, done)
		wg.Go(func() { defer stop(); _, _ = io.Copy(port, host); done() })
		wg.Go(func() { _, _ = io.Copy(host, port); done() })
	}
}
