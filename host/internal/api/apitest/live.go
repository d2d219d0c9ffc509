package apitest

import (
	"context"
	"fmt"
	"sync"

	"github.com/airlock-host/airlock/host/internal/session"
)

// Live is a terminal that echoes.
type Live struct {
	log *session.Log

	mu      sync.Mutex
	typed   []byte
	signals []int
	sizes   []string
}

// Input echoes.
func (l *Live) Input(_ context.Context, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.typed = append(l.typed, data...)
	return l.log.Append(session.Stdout, l.log.Next(), data)
}

// Print is output of the workload.
func (l *Live) Print(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Append(session.Stdout, l.log.Next(), []byte(text))
}

// Log is the session's log.
func (l *Live) Log() *session.Log { return l.log }

// Resize notes the size.
func (l *Live) Resize(_ context.Context, cols, rows uint16) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sizes = append(l.sizes, fmt.Sprintf("%dx%d", cols, rows))
	return nil
}

// Signal notes the signal.
func (l *Live) Signal(_ context.Context, signal int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signals = append(l.signals, signal)
	return nil
}

// Typed is everything that was typed.
func (l *Live) Typed() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.typed)
}

// Signals are those that were sent.
func (l *Live) Signals() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int(nil), l.signals...)
}

// Sizes are those that were set.
func (l *Live) Sizes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.sizes...)
}
