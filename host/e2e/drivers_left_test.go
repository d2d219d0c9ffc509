package e2e

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

var cellID = regexp.MustCompile(`^c[0-9a-f]{20}$`)

// cellsNow are the ids of the cells that have a link directory.
func (r *rig) cellsNow() []string {
	entries, _ := os.ReadDir(filepath.Join(r.dir, "run", "cells"))
	var ids []string
	for _, e := range entries {
		if cellID.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// vms are the QEMU processes of this rig by cell; templates are not cells.
func (r *rig) vms() map[string]int {
	found := map[string]int{}
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	ids := r.cellsNow()
	for _, p := range list {
		line, err := os.ReadFile(p)
		if err != nil || !strings.HasPrefix(string(line), "qemu") && !strings.Contains(strings.SplitN(string(line), "\x00", 2)[0], "qemu") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		for _, id := range ids {
			if strings.Contains(string(line), id) {
				found[id] = pid
			}
		}
	}
	return found
}

// containers are the names of the containers that the engine has.
func (r *rig) containers() []string {
	api, err := needs.engine.Client()
	if err != nil {
		r.t.Error(err)
		return nil
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all, err := api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		r.t.Error(err)
		return nil
	}
	var names []string
	for _, c := range all.Items {
		names = append(names, c.Names...)
	}
	return names
}

// cellsOf waits until a driver has so many cells.
func (r *rig) cellsOf(place string, want int) {
	r.t.Helper()
	r.until(place+" has so many cells", func() bool {
		switch place {
		case "docker":
			return len(r.containers()) == want
		case "qemu-kvm":
			return len(r.vms()) == want
		default:
			return true // cleaning up looks for its processes
		}
	})
}

// traces is what can be seen of this rig's cells: link directories, drivers'
// records, containers, processes, mounts, control groups.
func (r *rig) traces() []string {
	var found []string
	add := func(what string, names ...string) {
		for _, n := range names {
			found = append(found, what+" "+n)
		}
	}
	add("link directory", r.cellsNow()...)
	for _, root := range []string{r.dir + "/data/plugins", r.dir + "/run/plugins"} {
		_ = filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err == nil && cellID.MatchString(filepath.Base(path)) {
				add("file", path)
			}
			return nil
		})
	}
	add("container", r.containers()...)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, r.dir+"/") {
			add("mount", strings.TrimSpace(line))
		}
	}
	ids := r.cellsEver()
	for _, pid := range append(cellPids(r.dir, false), processesOf(ids)...) {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		add("process", strconv.Itoa(pid)+" "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	for _, dir := range groupsOf(ids) {
		add("control group", dir)
	}
	return found
}

// cellsEver are the ids of all cells that missions have had, by their journals.
func (r *rig) cellsEver() []string {
	var ids []string
	for cursor, more := "", true; more; {
		var list struct {
			Missions []struct {
				ID string `json:"mission_id"`
			} `json:"missions"`
			Next *string `json:"next"`
		}
		r.call("GET", "/api/v1/missions?cursor="+url.QueryEscape(cursor), nil, &list)
		if more = list.Next != nil; more {
			cursor = *list.Next
		}
		for _, m := range list.Missions {
			ids = append(ids, r.cellsOfMission(m.ID)...)
		}
	}
	return ids
}

// cellsOfMission are the ids of the cells that a mission has had.
func (r *rig) cellsOfMission(id string) (ids []string) {
	var page struct {
		Events []struct {
			Payload struct {
				Cell string `json:"cell_id"`
			} `json:"payload"`
		} `json:"events"`
	}
	r.call("GET", "/tasks/"+escape(id)+"/events?after=0", nil, &page)
	for _, e := range page.Events {
		if e.Payload.Cell != "" && !slices.Contains(ids, e.Payload.Cell) {
			ids = append(ids, e.Payload.Cell)
		}
	}
	return ids
}

// processesOf are the processes that have one of these ids in their command
// lines: QEMU, and what the drivers keep beside cells.
func processesOf(ids []string) []int {
	var pids []int
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range list {
		line, err := os.ReadFile(p)
		if err == nil && slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(string(line), id) }) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// leftovers ends every mission and looks for what a cell should have taken with
// it.
func (r *rig) leftovers() {
	select {
	case <-r.done:
		return // the test has failed
	default:
	}
	r.abortAll()
	var left []string
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = r.traces(); len(left) == 0 {
			break
		}
	}
	for _, what := range left {
		r.t.Errorf("left: %s", what)
	}
	if ids := r.cellsEver(); len(ids) == 0 {
		r.t.Error("the journals name no cell, so nothing was looked for")
	}
}

// groupsOf are the control groups whose names hold one of these ids.
func groupsOf(ids []string) []string {
	var dirs []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(filepath.Base(path), id) }) {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}
