package api

import (
	"sync"
	"time"
)

const (
	// maxFailures is how many wrong credentials a remote may show in a window
	// before it is told to go away.
	maxFailures   = 20
	failureWindow = time.Minute
	// maxRemotes bounds the memory of the limiter.
	maxRemotes = 1024
)

// limiter counts wrong credentials by remote. It slows down whoever fails and
// never keeps out who has the right token: on a loopback address a stranger
// could otherwise lock the operator out.
type limiter struct {
	now func() time.Time

	mu      sync.Mutex
	remotes map[string]*failures
}

type failures struct {
	count int
	since time.Time
}

// fail counts one failure. over says that there were too many, and first that
// this is the one that made it so.
func (l *limiter) fail(remote string) (over, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	f := l.remotes[remote]
	if f == nil || now.Sub(f.since) >= failureWindow {
		if f == nil && len(l.remotes) >= maxRemotes {
			l.evict(now)
		}
		f = &failures{since: now}
		l.remotes[remote] = f
	}
	f.count++
	return f.count > maxFailures, f.count == maxFailures+1
}

// evict drops what has expired, or else the oldest one.
func (l *limiter) evict(now time.Time) {
	oldest := ""
	for remote, f := range l.remotes {
		if now.Sub(f.since) >= failureWindow {
			delete(l.remotes, remote)
		} else if oldest == "" || f.since.Before(l.remotes[oldest].since) {
			oldest = remote
		}
	}
	if len(l.remotes) >= maxRemotes {
		delete(l.remotes, oldest)
	}
}
