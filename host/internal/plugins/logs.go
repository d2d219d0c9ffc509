package plugins

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	hclog "github.com/hashicorp/go-hclog"
)

// Bounds on what one plugin process can put into the host's log.
const (
	maxLogLine   = 8 << 10 // bytes of a line that are kept
	logRate      = 100     // lines a second, in the long run
	logBurst     = 500     // lines at once
	tailLines    = 6       // last lines kept for a fault
	tailWidth    = 300     // bytes of each of them
	reportPeriod = time.Second
)

// logs carries a plugin's output into the host's log. Lines are bounded,
// sanitised and counted against a rate; what is over the rate is read and
// dropped, so that a flood slows neither the host nor the plugin.
type logs struct {
	log hclog.Logger // stamped with the instance: a plugin cannot speak for another

	mu      sync.Mutex
	tokens  float64
	filled  time.Time
	dropped int
	report  *time.Timer
	inPanic bool
	tail    []string
	panicky []string // the first lines of a panic, which the stack would push out of the tail
}

func newLogs(log hclog.Logger) *logs {
	return &logs{log: log, tokens: logBurst, filled: time.Now()}
}

// consume reads lines until the reader ends.
func (l *logs) consume(r io.Reader) {
	in := bufio.NewReaderSize(r, 32<<10)
	for {
		line, cut, err := readLine(in, maxLogLine)
		if len(line) > 0 {
			l.line(line, cut)
		}
		if err != nil {
			return
		}
	}
}

// readLine reads one line without its end; of a longer one than max it gives
// the beginning and the number of bytes that were left out.
func readLine(in *bufio.Reader, max int) (line []byte, cut int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		room := max - len(line)
		keep := bytes.TrimSuffix(part, []byte("\n"))
		if len(keep) > room {
			cut += len(keep) - room
			keep = keep[:room]
		}
		line = append(line, keep...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, cut, err
		}
	}
}

// Write takes what a plugin printed after its handshake, which go-plugin
// carries over gRPC in pieces.
func (l *logs) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		if part = bytes.TrimSpace(part); len(part) > 0 {
			l.line(part[:min(len(part), maxLogLine)], max(0, len(part)-maxLogLine))
		}
	}
	return len(p), nil
}

func (l *logs) line(raw []byte, cut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember(raw)
	now := time.Now()
	l.tokens = min(logBurst, l.tokens+now.Sub(l.filled).Seconds()*logRate)
	l.filled = now
	if l.tokens < 1 {
		if l.dropped++; l.report == nil {
			l.report = time.AfterFunc(reportPeriod, l.flush)
		}
		return
	}
	l.tokens--
	level, message, fields := parseLine(raw, l.inPanic)
	if cut > 0 {
		fields = append(fields, "cut_bytes", cut)
	}
	l.log.Log(level, message, fields...)
}

// remember keeps the last lines, and the beginning of a panic.
func (l *logs) remember(raw []byte) {
	text := string(raw[:min(len(raw), 2*tailWidth)])
	if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
		l.inPanic, l.panicky = true, nil
	}
	if l.inPanic && len(l.panicky) < tailLines {
		l.panicky = append(l.panicky, clean(text, tailWidth))
	}
	if len(l.tail) == tailLines {
		copy(l.tail, l.tail[1:])
		l.tail = l.tail[:tailLines-1]
	}
	l.tail = append(l.tail, text)
}

// words are the lines that say best why a process ended.
func (l *logs) words() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.panicky) > 0 {
		return append([]string(nil), l.panicky...)
	}
	words := make([]string, 0, len(l.tail))
	for _, text := range l.tail {
		level, message, _ := parseLine([]byte(text), false)
		if strings.HasPrefix(text, "{") && level != hclog.NoLevel {
			text = message
		}
		words = append(words, clean(text, tailWidth))
	}
	return words
}

// flush says how much was dropped.
func (l *logs) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.report != nil {
		l.report.Stop()
		l.report = nil
	}
	if l.dropped > 0 {
		l.log.Warn("plugin log lines dropped", "dropped", l.dropped, "rate_per_s", logRate)
		l.dropped = 0
	}
}
