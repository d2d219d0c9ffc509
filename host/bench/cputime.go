package main

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// cputime is the processor time that a rig has used, in milliseconds, by who
// used it. It is what other load on the machine disturbs least, and so it goes
// into the notes.
type cputime map[string]float64

// cpu reads it. A plugin's children (cells, for a driver) count once they have
// been reaped, under its name with "'s children".
func (r *rig) cpu() cputime {
	used := cputime{}
	used["host"], _ = readCPU(r.cmd.Process.Pid)
	for name, pids := range r.plugins() {
		for _, pid := range pids {
			own, children := readCPU(pid)
			used[name] += own
			used[name+"'s children"] += children
		}
	}
	return used
}

// since says what was used for each of n things since an earlier reading.
func (c cputime) since(before cputime, n int) string {
	var parts []string
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(c)) {
		each := (c[name] - before[name]) / float64(n)
		total += each
		if each >= 0.05 {
			parts = append(parts, name+" "+strconv.FormatFloat(each, 'f', 1, 64))
		}
	}
	return strconv.FormatFloat(total, 'f', 1, 64) + " ms of processor time each (" + strings.Join(parts, ", ") + ")"
}

// readCPU gives a process's own time and that of its reaped children, in
// milliseconds; the kernel counts in ticks of 10 ms.
func readCPU(pid int) (own, children float64) {
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return 0, 0
	}
	ticks := func(i int) float64 {
		n, _ := strconv.ParseFloat(fields[i], 64)
		return n * 10
	}
	return ticks(11) + ticks(12), ticks(13) + ticks(14)
}
