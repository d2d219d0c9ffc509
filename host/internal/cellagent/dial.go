package cellagent

import (
	"context"
	"net"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// openDial asks the host to carry a connection for a process of the cell. With
// no host it waits for one; with the latch set it is refused. What the host
// makes of it shows on the connection: one that it refuses is closed.
func (a *Agent) openDial(ctx context.Context, d *cellv1.Dial) (net.Conn, error) {
	for {
		if err := a.checkLatch(); err != nil {
			return nil, err
		}
		l, err := a.links.wait(ctx)
		if err != nil {
			return nil, err
		}
		if err := a.checkLatch(); err != nil { // it may have been set while there was no host
			return nil, err
		}
		stream, err := l.mux.OpenStream()
		if err != nil {
			a.links.gone(l)
			continue
		}
		header := &cellv1.StreamHeader{Kind: &cellv1.StreamHeader_Dial{Dial: d}}
		if err := cell.NewEncoder(stream).Encode(header); err != nil {
			_ = stream.Close()
			a.links.gone(l)
			continue
		}
		return stream, nil
	}
}
