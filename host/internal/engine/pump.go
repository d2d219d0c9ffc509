package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/airlock-host/airlock/host/internal/session"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

const (
	// ackBytes is how much output is taken before it is synced and acknowledged.
	ackBytes = 256 << 10
	// ackDelay is how long a smaller piece may wait for that.
	ackDelay = 50 * time.Millisecond
)

// pump carries output from the cell agent into the session log and
// acknowledges what is on disk. It returns nil at the end of the output.
func (s *liveSession) pump(ctx context.Context, conn *cell.Conn) error {
	out, err := conn.ReadOutput(ctx, s.id, s.log.Next())
	if err != nil {
		return err
	}
	defer out.Close()
	acks := make(chan struct{}, 1)
	ackDone := make(chan struct{})
	go func() { defer close(ackDone); s.ack(ctx, conn, acks) }()
	defer func() { close(acks); <-ackDone }()
	var since uint64
	for {
		frame, err := out.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case frame.GetData() != nil:
			d := frame.GetData()
			if err := s.log.Append(session.Stream(d.GetStream()), d.GetOffset(), d.GetData()); err != nil {
				return err
			}
			s.touch()
			if since += uint64(len(d.GetData())); since >= ackBytes {
				since = 0
				if err := s.ackNow(ctx, conn); err != nil {
					return err
				}
				continue
			}
			select {
			case acks <- struct{}{}:
			default:
			}
		case frame.GetGap() != nil:
			if err := s.log.Gap(frame.GetGap().GetFrom(), frame.GetGap().GetTo()); err != nil {
				return err
			}
		case frame.GetEnd() != nil:
			return s.ackNow(ctx, conn)
		}
	}
}

// ack acknowledges what came in small pieces, a little later and together.
func (s *liveSession) ack(ctx context.Context, conn *cell.Conn, asked <-chan struct{}) {
	for range asked {
		if wait(ctx, ackDelay) != nil {
			continue
		}
		if err := s.ackNow(ctx, conn); err != nil {
			s.eng.log.Warn("output could not be acknowledged", "mission", s.a.id, "error", err)
		}
	}
}

func (s *liveSession) ackNow(ctx context.Context, conn *cell.Conn) error {
	next := s.log.Next()
	if err := s.log.Sync(); err != nil {
		return err
	}
	return conn.Ack(ctx, s.id, next)
}
