package cellagent

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// logger writes lines of time, level, constant text and key=value pairs. It is
// all that an agent needs of a logging library, without the weight of one.
type logger struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *logger) warn(text string, keyValues ...any)  { l.line("WARN", text, keyValues) }
func (l *logger) error(text string, keyValues ...any) { l.line("ERROR", text, keyValues) }

func (l *logger) line(level, text string, keyValues []any) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s [%s] airlock-cell: %s", time.Now().UTC().Format(time.RFC3339Nano), level, text)
	for i := 0; i+1 < len(keyValues); i += 2 {
		// Quoted, for a value may come from the workload.
		fmt.Fprintf(&b, " %v=%s", keyValues[i], strconv.Quote(fmt.Sprint(keyValues[i+1])))
	}
	b.WriteByte('\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.w, b.String()) // a log that nobody takes must not stop the agent
}

// errQuiet is an error that was shown already.
var errQuiet = errors.New("shown already")
