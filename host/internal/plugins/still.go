package plugins

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// lookEvery is how often a process is looked at for standing still.
const lookEvery = time.Second

// watchStill replaces a process that was stopped by a signal: it answers nobody,
// a stop that needs it waits for it, and whoever has stopped it may never let it
// go on. It holds nothing, so the next process serves as well. One that is slow,
// or that a debugger holds, is not in that state.
func (i *instance) watchStill(p *process) {
	defer i.catalog.running.Done()
	limit := i.catalog.deadlines.Still
	tick := time.NewTicker(min(lookEvery, limit))
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-p.exited:
			return
		case <-tick.C:
		}
		if look(p.pid).state != 'T' {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
			i.missed(p, "it stands still: it was stopped by a signal (SIGSTOP)")
		}
		if time.Since(since) >= limit {
			p.kill(fmt.Sprintf("it stood still for %s, stopped by a signal", limit))
		}
	}
}

// glance is what the kernel says of a process at one moment.
type glance struct {
	state byte   // of its main thread, as in /proc/PID/stat; 0: it is gone
	ticks uint64 // processor time of all its threads, in clock ticks
	wants bool   // a thread of it runs, waits for a processor or for the disk
}

// quiet says that between two glances a process neither had nor wanted a
// processor: one that is slow, or that a busy machine keeps waiting, does.
func quiet(before, after glance) bool {
	return before.state != 0 && after.state != 0 && !before.wants && !after.wants && before.ticks == after.ticks
}

// look takes a glance at a process.
func look(pid int) glance {
	dir := "/proc/" + strconv.Itoa(pid)
	text, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return glance{}
	}
	var g glance
	g.state, g.ticks = parseStat(text)
	threads, err := os.ReadDir(dir + "/task")
	g.wants = err != nil
	for _, thread := range threads {
		text, err := os.ReadFile(dir + "/task/" + thread.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		if state, _ := parseStat(text); state != 'S' && state != 'T' && state != 'I' {
			g.wants = true
		}
	}
	return g
}

// parseStat reads state, utime and stime. The name in parentheses may hold
// anything.
func parseStat(text []byte) (state byte, ticks uint64) {
	at := bytes.LastIndexByte(text, ')')
	if at < 0 {
		return 0, 0
	}
	fields := bytes.Fields(text[at+1:])
	if len(fields) < 13 || len(fields[0]) != 1 {
		return 0, 0
	}
	user, _ := strconv.ParseUint(string(fields[11]), 10, 64)
	system, _ := strconv.ParseUint(string(fields[12]), 10, 64)
	return fields[0][0], user + system
}
