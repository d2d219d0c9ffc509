package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// ErrSpent says that nothing is left of a mission's budget.
var ErrSpent = errors.New("the budget of the mission is spent")

// Budget knows what missions may still spend on model calls.
type Budget interface {
	// Reserve sets as much of want aside for one call as is left of limit (0 in
	// a field: no limit). ErrSpent: of something nothing is left. It is called
	// before anything is sent to the upstream.
	Reserve(mission string, limit, want Amount) (Reservation, error)
	// Settle ends a reservation with what the call has really used, which may be
	// more than was granted. It is called once for each reservation; one that
	// was never settled counts as used whole after a crash.
	Settle(r Reservation, used Amount)
}

// Reservation is what one call may use.
type Reservation struct {
	Mission string
	ID      uint64
	Granted Amount
}

type unlimited struct{}

func (unlimited) Reserve(mission string, _, want Amount) (Reservation, error) {
	return Reservation{Mission: mission, Granted: want}, nil
}
func (unlimited) Settle(Reservation, Amount) {}

// Ledger is a Budget in memory. With a directory it survives a crash of the
// host: what is reserved is noted there before the call and counts as used when
// the host comes back. The notes are not synced: after a power cut the cells
// are gone, and the journal has what was settled.
type Ledger struct {
	dir  string
	used func(mission string, used Amount)

	mu       sync.Mutex
	missions map[string]*spending
}

type spending struct {
	Used     Amount `json:"used"`
	Reserved Amount `json:"reserved"`

	open map[uint64]Amount
	next uint64
	lost Amount // was reserved when the host crashed
}

// NewLedger makes a Ledger. dir is where it is kept; empty: nowhere. used is
// told of what each call has used, and after a crash of what was reserved;
// nil: nobody.
func NewLedger(dir string, used func(mission string, used Amount)) (*Ledger, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("ledger of the gateway: %w", err)
		}
	}
	return &Ledger{dir: dir, used: used, missions: map[string]*spending{}}, nil
}

// Reserve is Budget's.
func (l *Ledger) Reserve(mission string, limit, want Amount) (Reservation, error) {
	res, lost, err := l.reserve(mission, limit, want)
	l.tell(mission, lost)
	return res, err
}

// tell says what was used. Nothing is locked: the listener may take its time.
func (l *Ledger) tell(mission string, used Amount) {
	if l.used != nil && used != (Amount{}) {
		l.used(mission, used)
	}
}

func (l *Ledger) reserve(mission string, limit, want Amount) (res Reservation, lost Amount, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spending(mission)
	lost, s.lost = s.lost, Amount{}
	taken := s.Used.plus(s.Reserved)
	granted := want
	for _, f := range []struct{ limit, taken, granted *int64 }{
		{&limit.Tokens, &taken.Tokens, &granted.Tokens}, {&limit.CostMicro, &taken.CostMicro, &granted.CostMicro},
	} {
		if *f.limit == 0 {
			continue
		}
		left := *f.limit - *f.taken
		if left <= 0 {
			return Reservation{}, lost, ErrSpent
		}
		*f.granted = min(*f.granted, left)
	}
	s.next++
	s.open[s.next] = granted
	s.Reserved = s.Reserved.plus(granted)
	if granted != (Amount{}) {
		if err := l.keep(mission, s); err != nil {
			delete(s.open, s.next)
			s.Reserved = s.Reserved.plus(Amount{-granted.Tokens, -granted.CostMicro})
			return Reservation{}, lost, err
		}
	}
	return Reservation{Mission: mission, ID: s.next, Granted: granted}, lost, nil
}

// Settle is Budget's.
func (l *Ledger) Settle(r Reservation, used Amount) {
	if l.settle(r, used) {
		l.tell(r.Mission, used)
	}
}

func (l *Ledger) settle(r Reservation, used Amount) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.missions[r.Mission]
	if s == nil { // the mission has ended
		return false
	}
	granted, ok := s.open[r.ID]
	if !ok {
		return false
	}
	delete(s.open, r.ID)
	s.Reserved = s.Reserved.plus(Amount{-granted.Tokens, -granted.CostMicro})
	s.Used = s.Used.plus(used)
	if granted != (Amount{}) || used != (Amount{}) {
		_ = l.keep(r.Mission, s) // an older note counts at least as much
	}
	return true
}

// Total is what a mission has used, and what is reserved for its calls.
func (l *Ledger) Total(mission string) (used, reserved Amount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spending(mission)
	return s.Used, s.Reserved
}

// Forget drops a mission that has ended.
func (l *Ledger) Forget(mission string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.missions, mission)
	if l.dir != "" {
		_ = os.Remove(l.file(mission))
	}
}

// spending finds or reads what a mission has spent. l.mu is held.
func (l *Ledger) spending(mission string) *spending {
	if s := l.missions[mission]; s != nil {
		return s
	}
	s := &spending{open: map[uint64]Amount{}}
	l.missions[mission] = s
	if l.dir == "" {
		return s
	}
	text, err := os.ReadFile(l.file(mission))
	if err == nil && json.Unmarshal(text, s) == nil {
		s.lost = s.Reserved // the host has crashed
		s.Used, s.Reserved = s.Used.plus(s.Reserved), Amount{}
	}
	return s
}

func (l *Ledger) file(mission string) string {
	sum := sha256.Sum256([]byte(mission))
	return filepath.Join(l.dir, hex.EncodeToString(sum[:])+".json")
}

func (l *Ledger) keep(mission string, s *spending) error {
	if l.dir == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := l.file(mission)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("ledger of the gateway: %w", err)
	}
	return os.Rename(path+".new", path)
}
