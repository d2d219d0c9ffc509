package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/airlock-host/airlock/host/internal/mission"
)

const (
	millionEvents = 1_000_000
	upgraded      = 200  // running missions
	liveAtOnce    = 1000 // missions
)

// measureOpen measures how long a store with a million events takes to open, and
// what a finished mission takes on disk.
func measureOpen(b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "o")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	events := b.rounds(millionEvents, 50_000)
	if err := b.fillEvents(dir, events); err != nil {
		return err
	}
	var took []float64
	for range b.rounds(9, 3) {
		began := time.Now()
		_, closeStore, err := openStore(dir)
		if err != nil {
			return err
		}
		took = append(took, ms(time.Since(began)))
		if err := closeStore(); err != nil {
			return err
		}
	}
	if b.short {
		b.note("store_open_1m_ms: %d events only", events)
	}
	b.emit("store_open_1m_ms", "ms", median(took), 0, len(took), spread(took))
	if !b.wanted("store_kb_per_mission") {
		return nil
	}
	return b.growth()
}

// fillEvents stores events of missions of a hundred each.
func (b *bench) fillEvents(dir string, events int) error {
	s, closeStore, err := openStore(dir)
	if err != nil {
		return err
	}
	const each, batch = 100, 50
	for i := 0; i < events/each && err == nil; i++ {
		l := newLife(fmt.Sprintf("stored-%06d", i))
		facts := opened(l.head.JournalUUID, time.Now())
		for n := len(facts); n < each; n++ {
			facts = append(facts, progressed(n))
		}
		facts[each-1] = mission.Ended{V: 1, State: mission.StateDone}
		for at := 0; at < each && err == nil; at += batch {
			rows, terr := l.then(time.Now(), false, facts[at:at+batch]...)
			if err = terr; err == nil {
				err = commitTo(b.ctx, s, rows)
			}
		}
	}
	return errors.Join(err, b.ctx.Err(), closeStore())
}

// growth measures what a mission that ran one command leaves in the store.
func (b *bench) growth() error {
	dir, err := os.MkdirTemp(b.dir, "g")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, closeStore, err := openStore(dir)
	if err != nil {
		return err
	}
	before, _, err := s.Space(b.ctx)
	n := b.rounds(2000, 500)
	for i := 0; i < n && err == nil; i++ {
		rows, merr := endedMission(fmt.Sprintf("mission-%06d", i), time.Now())
		if err = merr; err == nil {
			err = commitTo(b.ctx, s, rows)
		}
	}
	after, _, serr := s.Space(b.ctx)
	if err = errors.Join(err, serr, closeStore()); err != nil {
		return err
	}
	b.emit("store_kb_per_mission", "KB", float64(after-before)/1024/float64(n), 0, n, 0)
	return nil
}

// measureUpgrade measures the longest that a dispatch waits while the host's
// program is replaced with 200 missions running: each dispatch comes over a
// connection of its own, and none may fail.
func measureUpgrade(b *bench) error {
	running := b.rounds(upgraded, 20)
	r, err := startedRig(b, agentBlock("agent-01", running, 100_000, "governance {\n    max_resumes = 1000\n  }"))
	if err != nil {
		return err
	}
	defer r.clean()
	ids := make([]string, running-1)
	for i := range ids {
		ids[i] = fmt.Sprintf("running-%03d", i)
	}
	if err := r.dispatchAll(ids, "sleep 3600", 8); err != nil {
		return err
	}
	if _, err := r.watch.await(b.ctx, "mission.started", ids...); err != nil {
		return err
	}
	d, err := newDoor(r)
	if err != nil {
		return err
	}
	defer d.close()
	d.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	var usual, gaps []float64
	for range b.rounds(5, 2) {
		for range 20 {
			took, err := d.accept()
			if err != nil {
				return err
			}
			usual = append(usual, took)
		}
		ups := r.ups()
		if err := r.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			return err
		}
		longest := 0.0
		for after := 0; after < 20; {
			took, err := d.accept()
			if err != nil {
				return fmt.Errorf("a dispatch failed while the host was replaced: %w\n%s", err, r.logTail())
			}
			longest = max(longest, took)
			if r.ups() > ups {
				after++
			}
		}
		gaps = append(gaps, longest)
		r.watch.forget()
		if err := until(b.ctx, "the host is registered again", func() bool { return r.orc.Connected(1, 0) }); err != nil {
			return err
		}
	}
	b.emit("upgrade_gap_ms", "ms", median(gaps), median(usual), len(gaps), spread(gaps))
	return nil
}

// ups is how often the host has come up.
func (r *rig) ups() int {
	text, _ := os.ReadFile(filepath.Join(r.dir, "host.log"))
	return strings.Count(string(text), "airlock is up")
}

// measureLive measures what a thousand running missions cost the host: memory,
// descriptors and processor time of each.
func measureLive(b *bench) error {
	n := b.rounds(liveAtOnce, 50)
	r, err := startedRig(b, agentBlock("agent-01", n, 100, ""))
	if err != nil {
		return err
	}
	defer r.clean()
	pause(b, 2*time.Second)
	pid := r.cmd.Process.Pid
	before, err := sampleMemory(b, pid)
	if err != nil {
		return err
	}
	open := openFiles(pid)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("live-%04d", i)
	}
	began := time.Now()
	if err := r.dispatchAll(ids, "sleep 3600", 8); err != nil {
		return err
	}
	if _, err := r.watch.await(b.ctx, "mission.started", ids...); err != nil {
		return err
	}
	b.emit("live_1000_started_ms", "ms", ms(time.Since(began)), 0, n, 0)
	pause(b, 5*time.Second)
	after, err := sampleMemory(b, pid)
	if err != nil {
		return err
	}
	used := cpuSeconds(pid)
	pause(b, 10*time.Second)
	b.emit("live_1000_cpu_percent", "%", 10*(cpuSeconds(pid)-used), 0, 1, 0)
	b.emit("live_1000_kb_per_mission", "KB", 1024*(median(after)-median(before))/float64(n), 0, n, 0)
	b.emit("live_1000_fds_per_mission", "", float64(openFiles(pid)-open)/float64(n), 0, n, 0)
	return nil
}

func openFiles(pid int) int {
	list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return len(list)
}

// cpuSeconds is what a process has used up to now.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system float64
	if len(fields) > 12 {
		_, _ = fmt.Sscan(fields[11], &user)
		_, _ = fmt.Sscan(fields[12], &system)
	}
	return (user + system) / 100 // the kernel counts hundredths
}
