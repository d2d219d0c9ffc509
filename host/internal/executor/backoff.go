package executor

import (
	"math/rand/v2"
	"time"
)

// backoff doubles from min to max, each wait jittered by a quarter.
type backoff struct {
	min, max time.Duration
	next     time.Duration
}

func (b *backoff) reset() { b.next = 0 }

func (b *backoff) wait() time.Duration {
	d := max(b.next, b.min)
	b.next = min(2*d, b.max)
	jittered := time.Duration(float64(d) * (0.75 + 0.5*rand.Float64()))
	return min(max(jittered, b.min), b.max)
}
