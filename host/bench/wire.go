package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"github.com/airlock-host/airlock/host/internal/executor"
	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// arrivals pairs each event's commit with its arrival at the orchestrator, by
// mission and iteration.
type arrivals struct {
	mu       sync.Mutex
	begun    map[string]time.Time
	durable  map[string]time.Time
	received map[string]time.Time
}

func progressKey(missionID string, iteration int) string {
	return fmt.Sprint(missionID, " ", iteration)
}

func (a *arrivals) event(e orchestrator.Event) {
	if e.Event != "mission.progress" {
		return
	}
	var data struct {
		Iteration int `json:"iteration"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := progressKey(e.MissionID, data.Iteration); a.received[key].IsZero() {
		a.received[key] = e.Received
	}
}

func (a *arrivals) committed(key string, begun, durable time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun[key], a.durable[key] = begun, durable
}

func (a *arrivals) complete(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.received) >= n
}

const (
	wireMissions = 50
	wireRate     = 1000 // events a second
)

// measureDelivery measures from the end of a commit to the arrival of its event
// at the orchestrator, at a steady rate: the real store, the real executor, the
// real orchestrator and real sockets, with an engine that only commits.
func measureDelivery(b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "w")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, closeStore, err := openStore(dir)
	if err != nil {
		return err
	}
	seen := &arrivals{begun: map[string]time.Time{}, durable: map[string]time.Time{}, received: map[string]time.Time{}}
	orc := orchestrator.New(orchestrator.Options{Hooks: orchestrator.Hooks{BeforeEvent: seen.event}})
	if err := orc.Start("127.0.0.1:0"); err != nil {
		return errors.Join(err, closeStore())
	}
	defer orc.Close()
	eng := newCommitter(s)
	router := mux.NewRouter()
	rest := httptest.NewServer(router)
	defer rest.Close()
	id, err := executor.LoadIdentity(dir)
	if err != nil {
		return errors.Join(err, closeStore())
	}
	x := executor.New(executor.Options{Endpoint: orc.URL(), Name: "bench", Version: "0.0.0", ID: id, REST: rest.URL,
		WS: "ws://127.0.0.1:8121", Engine: eng, Outbox: s})
	x.Register(router)
	ctx, stop := context.WithCancel(b.ctx)
	linked := make(chan struct{})
	go func() { defer close(linked); x.Run(ctx) }()
	err = deliverAll(b, orc, eng, seen)
	stop()
	<-linked
	if err = errors.Join(err, closeStore()); err != nil {
		return err
	}
	for _, v := range orc.Violations() {
		return fmt.Errorf("breach of the contract: %s: %s", v.Kind, v.Detail)
	}
	return b.reportDelivery(seen)
}

// deliverAll dispatches the missions and commits their progress at the rate.
func deliverAll(b *bench, orc *orchestrator.Orchestrator, eng *committer, seen *arrivals) error {
	if !orc.Connected(1, patience) {
		return errors.New("the executor did not connect")
	}
	ids := make([]string, wireMissions)
	for i := range ids {
		ids[i] = fmt.Sprintf("mission-%02d", i)
		if status, answer := orc.Dispatch(b.ctx, dispatchBody(ids[i], "work", "")); status != http.StatusAccepted {
			return fmt.Errorf("dispatch: %d %v", status, answer)
		}
		if err := eng.start(b.ctx, ids[i]); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		_, err := orc.Wait(ctx, ids[i], func(m orchestrator.Mission) bool { return m.State == "running" })
		cancel()
		if err != nil {
			return err
		}
	}
	total := wireRate * b.rounds(10, 2)
	errs := make(chan error, 1)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range total {
		due := began.Add(time.Duration(i) * time.Second / wireRate)
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		if b.ctx.Err() != nil {
			break
		}
		id, iteration := ids[i%wireMissions], i/wireMissions
		// The commit does not hold up the next one: the rate is what it is.
		wg.Go(func() {
			begun, durable, err := eng.progress(b.ctx, id, iteration)
			if err != nil {
				select {
				case errs <- err:
				default:
				}
				return
			}
			seen.committed(progressKey(id, iteration), begun, durable)
		})
	}
	wg.Wait()
	rate := float64(total) / time.Since(began).Seconds()
	select {
	case err := <-errs:
		return err
	default:
	}
	b.note("ws_p99_ms: %d events at %.0f/s", total, rate)
	return until(b.ctx, "every event has arrived", func() bool { return seen.complete(total) })
}

func (b *bench) reportDelivery(seen *arrivals) error {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	var after, whole []float64
	for i := 0; ; i++ { // in the order of commits, for the slices
		key := progressKey(fmt.Sprintf("mission-%02d", i%wireMissions), i/wireMissions)
		got, ok := seen.received[key]
		if !ok {
			break
		}
		// The event may be there before its committer is scheduled again.
		after = append(after, max(0, ms(got.Sub(seen.durable[key]))))
		whole = append(whole, ms(got.Sub(seen.begun[key])))
	}
	bare, err := bareSocket(b)
	if err != nil {
		return err
	}
	b.note("ws_p99_ms: from the end of the commit p50 %.2f, p99 %.2f, max %.2f ms; from its begin p50 %.2f, p99 %.2f ms; bare WebSocket p50 %.2f, p99 %.2f ms",
		median(after), percentile(after, 0.99), percentile(after, 1), median(whole), percentile(whole, 0.99), median(bare), percentile(bare, 0.99))
	b.emit("ws_p99_ms", "ms", percentile(after, 0.99), percentile(bare, 0.99), len(after), spread(sliced(after, 0.99)))
	return nil
}
