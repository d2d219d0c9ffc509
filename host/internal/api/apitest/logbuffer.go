package apitest

import (
	"bytes"
	"sync"
)

// LogBuffer keeps what was logged.
type LogBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps a line.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is everything so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
