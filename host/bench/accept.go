package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// door is the host's dispatch route as the orchestrator sees it, with the
// executor's token, over one connection that is kept.
type door struct {
	r      *rig
	url    string
	token  string
	client *http.Client
	n      int
}

// newDoor occupies the agent's only slot with a sleeper, so that what is
// accepted from then on waits and starts no process.
func newDoor(r *rig) (*door, error) {
	if err := r.dispatch("sleeper", "sleep 3600", ""); err != nil {
		return nil, err
	}
	if _, err := r.watch.await(r.b.ctx, "mission.started", "sleeper"); err != nil {
		return nil, err
	}
	resp, err := http.Get(r.orc.URL() + "/api/v1/executors")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Executors []struct {
			Transport struct {
				REST string `json:"rest"`
			} `json:"transport_endpoints"`
		} `json:"executors"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	if len(list.Executors) != 1 {
		return nil, fmt.Errorf("%d executors are registered, not one", len(list.Executors))
	}
	return &door{r: r, url: list.Executors[0].Transport.REST + "/dispatch", token: r.watch.executorToken(),
		client: &http.Client{Transport: &http.Transport{}, Timeout: patience}}, nil
}

func (d *door) close() { d.client.CloseIdleConnections() }

// accept dispatches one mission to the host and gives how long the 202 took, in
// milliseconds.
func (d *door) accept() (float64, error) {
	d.n++
	id := fmt.Sprintf("accepted-%06d", d.n)
	d.r.watch.show(id)
	body := dispatchBody(id, "sleep 3600 # "+strings.Repeat("change what is asked for, and run the tests; ", 9), "")
	req, err := http.NewRequestWithContext(d.r.b.ctx, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+d.token)
	began := time.Now()
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusAccepted {
		return 0, fmt.Errorf("dispatch of %s: %s %s %w", id, resp.Status, text, err)
	}
	return ms(took), nil
}

// dispatchBody is a dispatch as serve sends it; agent may be empty.
func dispatchBody(id, objective, agent string) []byte {
	body := map[string]any{"mission_id": id, "objective": objective, "completion": "it exits 0"}
	if agent != "" {
		body["executor_filter"] = map[string]any{"agent_id": agent}
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings only
	}
	return text
}

// dispatch routes a mission at the orchestrator.
func (r *rig) dispatch(id, objective, agent string) error {
	ctx, cancel := context.WithTimeout(r.b.ctx, patience)
	defer cancel()
	if status, answer := r.orc.Dispatch(ctx, dispatchBody(id, objective, agent)); status != http.StatusAccepted {
		return fmt.Errorf("dispatch of %s: %d %v", id, status, answer)
	}
	return nil
}

// acceptAgent has one slot and room for everything that waits.
func acceptAgent() string { return agentBlock("agent-01", 1, 100_000, "") }

// block is how many samples of one kind follow each other before the other
// kind has its turn.
const block = 20

// measureAccept measures from the POST of a dispatch to its 202, one at a time.
func measureAccept(b *bench) error {
	r, err := startedRig(b, acceptAgent())
	if err != nil {
		return err
	}
	defer r.clean()
	d, err := newDoor(r)
	if err != nil {
		return err
	}
	defer d.close()
	for range block { // warm up
		if _, err := d.accept(); err != nil {
			return err
		}
	}
	size, err := r.journalled(fmt.Sprintf("accepted-%06d", d.n))
	if err != nil {
		return err
	}
	plain, err := newAppender(r.dir, size)
	if err != nil {
		return err
	}
	defer plain.close()
	before := r.cpu()
	var accepts, appends []float64
	for n := b.rounds(2000, 200); len(accepts) < n; {
		for range block {
			took, err := d.accept()
			if err != nil {
				return err
			}
			accepts = append(accepts, took)
		}
		for range block {
			began := time.Now()
			if err := plain.append(); err != nil {
				return err
			}
			appends = append(appends, ms(time.Since(began)))
		}
	}
	b.note("accept: %s", r.cpu().since(before, len(accepts)))
	b.note("accept: p50 %.2f, p90 %.2f, p99 %.2f, max %.2f ms; append + fdatasync of %d bytes: p50 %.2f, p99 %.2f ms",
		median(accepts), percentile(accepts, 0.9), percentile(accepts, 0.99), percentile(accepts, 1),
		size, median(appends), percentile(appends, 0.99))
	b.emit("accept_p50_ms", "ms", median(accepts), median(appends), len(accepts), spread(accepts))
	b.emit("accept_p99_ms", "ms", percentile(accepts, 0.99), percentile(appends, 0.99), len(accepts), spread(sliced(accepts, 0.99)))
	return nil
}

// journalled is how many bytes a mission's journal has as an export.
func (r *rig) journalled(id string) (int, error) {
	req, err := http.NewRequestWithContext(r.b.ctx, http.MethodGet, "http://localhost/tasks/"+id+"/export", nil)
	if err != nil {
		return 0, err
	}
	resp, err := r.api.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || n == 0 {
		return 0, fmt.Errorf("export of %s: %s, %d bytes, %w", id, resp.Status, n, orUnexpected(err))
	}
	return int(n), nil
}

func orUnexpected(err error) error {
	if err == nil {
		return os.ErrInvalid
	}
	return err
}

// measureStored compares accepts of a host with few stored missions to those of
// one with many; the two run side by side and take turns.
func measureStored(b *bench) error {
	const few = 100
	many := b.rounds(100_000, 10_000)
	var doors []*door
	for _, n := range []int{few, many} {
		r, err := newRig(b, acceptAgent())
		if err != nil {
			return err
		}
		defer r.clean()
		began := time.Now()
		if err := fill(r, n); err != nil {
			return fmt.Errorf("store %d missions: %w", n, err)
		}
		b.note("%d missions were stored in %.1f s", n, time.Since(began).Seconds())
		if err := r.start(); err != nil {
			return err
		}
		b.note("a host with %d stored missions is registered %.0f ms after its start", n, ms(time.Since(r.began)))
		d, err := newDoor(r)
		if err != nil {
			return err
		}
		defer d.close()
		doors = append(doors, d)
	}
	took := make([][]float64, 2)
	n := b.rounds(1500, 200)
	for turn := 0; len(took[0]) < n+block; turn++ {
		for k := range doors {
			i := (k + turn) % 2 // who is first changes
			for range block {
				t, err := doors[i].accept()
				if err != nil {
					return err
				}
				took[i] = append(took[i], t)
			}
		}
	}
	took[0], took[1] = took[0][block:], took[1][block:] // the first block warmed up
	p50 := []float64{median(took[0]), median(took[1])}
	b.note("accept with %d stored missions: p50 %.2f ms, p99 %.2f ms; with %d: p50 %.2f ms, p99 %.2f ms",
		few, p50[0], percentile(took[0], 0.99), many, p50[1], percentile(took[1], 0.99))
	b.emit("accept_100k_ratio", "ratio", p50[1]/p50[0], 0, len(took[1]), spread(ratios(took[1], took[0])))
	return nil
}

// ratios are those of the medians of corresponding slices.
func ratios(a, b []float64) []float64 {
	x, y := sliced(a, 0.5), sliced(b, 0.5)
	var out []float64
	for i := range min(len(x), len(y)) {
		out = append(out, x[i]/y[i])
	}
	return out
}
