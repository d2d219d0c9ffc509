package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// hostConfig is the configuration of a host that is measured: host-supervisor
// and the command runtime, everything else as it comes.
func hostConfig(dir, bin, endpoint, agents string) string {
	return fmt.Sprintf(`
name     = "bench"
data_dir = "%[1]s/data"
run_dir  = "%[1]s/run"
listen {
  rest = "127.0.0.1:0"
  ws   = "127.0.0.1:0"
}
orchestrator {
  endpoint = %[2]q
}
plugins {
  dir  = "%[3]s/plugins"
  lock = "%[1]s/no.lock.hcl"
}
isolation "host-supervisor" "host" {
  config {}
}
runtime "command" "shell" {
  config {}
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
  head {
    file     = "%[1]s/heads/heads.jsonl"
    key_file = "%[1]s/heads/host.key"
  }
}
%[4]s
operator "bench" {
  token_file = "%[1]s/operator.token"
  uids       = [%[5]d]
  role       = "operator"
}
`, dir, endpoint, bin, agents, os.Getuid())
}

// writeConfig writes a host's configuration into dir and gives its path.
func writeConfig(dir, bin, endpoint, agents string) (string, error) {
	conf := filepath.Join(dir, "airlock.hcl")
	return conf, errors.Join(os.WriteFile(conf, []byte(hostConfig(dir, bin, endpoint, agents)), 0o600),
		os.WriteFile(filepath.Join(dir, "operator.token"), []byte(strings.Repeat("k3y-", 10)), 0o600))
}

// warmCells is how many cells an agent with warmLine keeps ready.
const (
	warmCells = 4
	warmLine  = "warm = 4"
)

// warmSetting is an agent block's line about warm cells.
var warmSetting = regexp.MustCompile(`(?m)^ *warm += [0-9]+$`)

// wantNoWarmCells takes them out of a configuration.
func wantNoWarmCells(conf string) error {
	text, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	return os.WriteFile(conf, warmSetting.ReplaceAll(text, nil), 0o600)
}

// agentBlock is an agent block with further lines.
func agentBlock(name string, slots, queue int, lines string) string {
	return fmt.Sprintf(`
agent %q {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = %d
  queue     = %d
  %s
}
`, name, slots, queue, lines)
}

// cellProcesses are the processes of this rig's cells: those in whose mounts
// the rig's directory of cells appears. Zombies do not count.
func (r *rig) cellProcesses() []int {
	var pids []int
	procs, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, p := range procs {
		mounts, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(mounts, []byte(r.dir+"/run/cells/")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		stat, statErr := os.ReadFile(filepath.Join(filepath.Dir(p), "stat"))
		if err == nil && statErr == nil && !bytes.Contains(stat, []byte(") Z ")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cellAgents are the cell agents among them.
func (r *rig) cellAgents() []int {
	var pids []int
	for _, pid := range r.cellProcesses() {
		cmd, err := os.ReadFile(procFile(pid, "cmdline"))
		if err == nil && bytes.HasPrefix(cmd, []byte("airlock-cell\x00serve")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// plugins are the processes that the host has started and that are plugins, by
// the program's name; several instances have one name.
func (r *rig) plugins() map[string][]int {
	found := map[string][]int{}
	procs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range procs {
		stat, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything; state and parent follow it.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(r.cmd.Process.Pid) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err != nil {
			continue
		}
		cmd, _ := os.ReadFile(procFile(pid, "cmdline"))
		name, _, _ := strings.Cut(string(cmd), "\x00")
		if strings.Contains(name, "airlock-") {
			name = filepath.Base(name)
			found[name] = append(found[name], pid)
		}
	}
	return found
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}
