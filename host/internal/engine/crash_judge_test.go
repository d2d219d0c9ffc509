package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// judged is what the model knows of a task from its journal. It is not the
// reducer: it holds what must be true of any journal, however it came about.
type judged struct {
	epoch           uint64
	stopped, paused bool
	ended           bool
	decisions       map[string]*decided
	dispatched      map[string]bool   // proposals
	open            map[string]string // invocation → decision
	closed          map[string]bool   // invocations
	grants          map[string]string // id → issuer, those that are not revoked
	refs            map[string]bool   // access that was recorded
	answers         map[string]string // decision → the one that took its place
	executed        int
	faults          []string
}

type decided struct {
	governance.Decided
	used bool
}

func (j *judged) fault(format string, args ...any) {
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// judge reads what is left of a history.
func judge(dir string, told []line, sum *totals, fail func(string, ...any)) {
	ctx := context.Background()
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "key", "host.key"))
	if err != nil {
		fail("%v", err)
		return
	}
	signed, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads", "heads.jsonl"), Key: key})
	if err != nil {
		fail("%v", err)
		return
	}
	defer func() { _ = signed.Close() }()
	st, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Heads: signed, Ballast: -1})
	if err != nil {
		fail("%v", err)
		return
	}
	defer func() { _ = st.Close() }()
	if len(signed.Problems()) > 0 {
		fail("the signed heads are not good: %v", signed.Problems())
	}
	tasks := map[string]*judged{}
	for cursor := ""; ; {
		rows, next, err := st.Missions(ctx, store.MissionFilter{Limit: 100, After: cursor})
		if err != nil {
			fail("%v", err)
			return
		}
		for _, r := range rows {
			j, err := readTask(ctx, st, r, sum)
			if err != nil {
				fail("task %s: %v", r.MissionID, err)
				return
			}
			tasks[r.MissionID] = j
			for _, f := range j.faults {
				fail("task %s: %s", r.MissionID, f)
			}
		}
		if cursor = next; next == "" {
			break
		}
	}
	compare(tasks, told, sum, fail)
	issuer(dir, tasks, sum, fail)
	if left, err := os.ReadDir(filepath.Join(dir, "heads", "stops")); err == nil && len(left) > 0 {
		fail("%d tombstones are left", len(left))
	}
	if rows, err := st.Cells(ctx); err != nil || len(rows) > 0 {
		fail("%d cells are left, %v", len(rows), err)
	}
}

// readTask verifies a journal and runs the model over it.
func readTask(ctx context.Context, st *store.Store, r store.MissionRow, sum *totals) (*judged, error) {
	if err := st.VerifyTask(ctx, r.MissionID); err != nil {
		return nil, err
	}
	j := &judged{decisions: map[string]*decided{}, dispatched: map[string]bool{}, open: map[string]string{}, closed: map[string]bool{},
		grants: map[string]string{}, refs: map[string]bool{}, answers: map[string]string{}}
	sum.tasks.Add(1)
	var m mission.Mission
	if err := json.Unmarshal(r.Data, &m); err != nil {
		return nil, err
	}
	for after := uint64(0); ; {
		events, err := st.Events(ctx, r.MissionID, after, 100)
		if err != nil {
			return nil, err
		}
		for _, ev := range events {
			f, err := mission.Decode(ev.Kind, ev.Payload)
			if err != nil {
				return nil, err
			}
			j.see(f, sum)
			after = ev.Sequence
			sum.events.Add(1)
			if m.Sequence > 0 && ev.Sequence > m.Sequence { // the row may be behind
				if err := m.Replay(&ev); err != nil {
					return nil, err
				}
			}
		}
		if len(events) == 0 {
			break
		}
	}
	if m.Epoch != j.epoch || m.Task.Counters.Executed != j.executed || len(m.Task.Running)+len(m.Task.Unresolved) != len(j.open) || m.Latched() != j.stopped && !j.ended {
		j.fault("its row says epoch %d, %d executed, %d open, stopped %v; its journal %d, %d, %d, %v", m.Epoch, m.Task.Counters.Executed,
			len(m.Task.Running)+len(m.Task.Unresolved), m.Latched(), j.epoch, j.executed, len(j.open), j.stopped)
	}
	if !m.Harness && !j.ended {
		j.fault("the mission did not end")
	}
	if m.Harness && !j.stopped {
		j.fault("the task is not stopped")
	}
	for id := range j.grants {
		j.fault("the grant %s is not revoked", id)
	}
	return j, nil
}

func (j *judged) begin(epoch uint64, what string) {
	if epoch <= j.epoch {
		j.fault("%s begins epoch %d, it is %d", what, epoch, j.epoch)
	}
	j.epoch = epoch
}

// see takes the model one event further.
func (j *judged) see(f mission.Fact, sum *totals) {
	switch f := f.(type) {
	case mission.Opened:
		j.epoch = 1
	case mission.Paused:
		if j.paused = true; !f.Again {
			j.begin(f.Epoch, "a pause")
		}
	case mission.ReplanAsked:
		j.paused = true
		j.begin(f.Epoch, "a replan")
	case mission.Resumed:
		if f.From == "paused" {
			j.paused = false
		}
	case mission.Stopped:
		j.stopped = true
		j.begin(f.Epoch, "a stop")
		sum.stops.Add(1)
	case mission.Restarted:
		if len(j.open) > 0 || !j.stopped {
			j.fault("a restart with %d open calls, stopped %v", len(j.open), j.stopped)
		}
		j.stopped = false
		j.begin(f.Epoch, "a restart")
	case mission.Reconnected:
		if f.Epoch > 0 {
			j.begin(f.Epoch, "a reconnection")
		}
	case mission.Ended:
		j.ended = true
	case governance.Decided:
		j.decide(f)
	case governance.Approved:
		sum.approvals.Add(1)
		switch d := j.decisions[f.DecisionID]; {
		case d == nil:
			j.fault("an approval of %s, which was never decided", f.DecisionID)
		case !d.Decision.Status.Waits() || d.Epoch != j.epoch || j.stopped && f.Action != governance.StopAgent:
			j.fault("an approval of %s, which is %s of epoch %d in %d, stopped %v", f.DecisionID, d.Decision.Status, d.Epoch, j.epoch, j.stopped)
		case j.answers[f.DecisionID] != "":
			j.fault("the approval %s was used twice", f.DecisionID)
		}
		j.answers[f.DecisionID] = f.ResolvedID
	case governance.Executed:
		j.execute(f)
		sum.dispatches.Add(1)
	case governance.Settled:
		j.settle(f.InvocationID)
	case governance.Resolved:
		j.settle(f.InvocationID)
	case governance.Granted:
		if f.Access != nil {
			j.refs[f.Access.Ref] = true
			sum.access.Add(1)
			break
		}
		if j.ended || j.stopped && f.State == "requested" {
			j.fault("access is asked for after the end")
		}
		j.grants[f.GrantID] = f.Issuer
		if f.State == "requested" {
			sum.grants.Add(1)
		}
	case governance.RevocationResult:
		if f.Result == "acknowledged" {
			for id, name := range j.grants {
				if name == f.Issuer {
					delete(j.grants, id)
				}
			}
		}
	}
}

func (j *judged) decide(f governance.Decided) {
	if f.Epoch != j.epoch || j.stopped || j.ended {
		j.fault("decision %s of epoch %d in %d, stopped %v, ended %v", f.DecisionID, f.Epoch, j.epoch, j.stopped, j.ended)
	}
	if f.Tool == "push" && f.Decision.Status.Runs() {
		link := ""
		if f.Decision.CausalLink != nil {
			link = *f.Decision.CausalLink
		}
		if j.answers[link] != f.DecisionID {
			j.fault("decision %s lets a push run without an approval of its own (it follows from %q)", f.DecisionID, link)
		}
	}
	j.decisions[f.DecisionID] = &decided{Decided: f}
}

func (j *judged) execute(f governance.Executed) {
	j.executed++
	switch d := j.decisions[f.DecisionID]; {
	case d == nil:
		j.fault("a dispatch of %s without a journalled decision", f.DecisionID)
	case j.stopped || j.ended || j.paused:
		j.fault("a dispatch of %s after a stop (%v), end (%v) or pause (%v)", f.DecisionID, j.stopped, j.ended, j.paused)
	case d.used:
		j.fault("decision %s was dispatched twice", f.DecisionID)
	case !d.Decision.Status.Runs() || d.Epoch != j.epoch || f.Epoch != j.epoch || d.Fingerprint != f.Fingerprint:
		j.fault("a dispatch of %s, which is %s of epoch %d in %d", f.DecisionID, d.Decision.Status, d.Epoch, j.epoch)
	case j.dispatched[d.ProposalID]:
		j.fault("proposal %s was dispatched twice", d.ProposalID)
	default:
		d.used = true
		j.dispatched[d.ProposalID] = true
	}
	j.open[f.InvocationID] = f.DecisionID
}

func (j *judged) settle(invocation string) {
	if invocation == "" {
		return
	}
	if _, runs := j.open[invocation]; !runs {
		j.fault("the end of call %s, which does not run", invocation)
	}
	delete(j.open, invocation)
	j.closed[invocation] = true
}

// compare holds the journals against what callers were told: nothing that was
// answered is lost, and nothing was answered that is not there.
func compare(tasks map[string]*judged, told []line, sum *totals, fail func(string, ...any)) {
	stopped, late := map[string]bool{}, map[string]bool{}
	for _, l := range told {
		if l.verb == "at" {
			continue
		}
		task := l.args[0]
		j := tasks[task]
		if j == nil {
			fail("task %s was opened and is not there", task)
			return
		}
		switch l.verb {
		case "stopped":
			stopped[task] = true
		case "restarts":
			stopped[task] = false
		case "tries":
			late[task+l.args[1]] = stopped[task]
		case "runs":
			decision, invocation := l.args[2], l.args[3]
			if late[task+l.args[1]] {
				fail("task %s: call %s was admitted after a stop had answered", task, invocation)
			}
			if j.open[invocation] != decision && !j.closed[invocation] {
				fail("task %s: call %s was admitted and is not in the journal", task, invocation)
			}
		case "done", "resolved":
			if !j.closed[l.args[1]] {
				fail("task %s: the end of call %s was taken and is not in the journal", task, l.args[1])
			}
		case "answered":
			if by := l.args[3]; j.answers[l.args[1]] != by {
				fail("task %s: the answer to %s led to %s, the journal says %q", task, l.args[1], by, j.answers[l.args[1]])
			}
		case "access":
			if !j.refs[l.args[1]] {
				fail("task %s: access %s was taken down and is not in the journal", task, l.args[1])
			}
		}
	}
}

// issuer reads the issuer's ledger: whatever it gave it has taken back.
func issuer(dir string, tasks map[string]*judged, sum *totals, fail func(string, ...any)) {
	file, err := os.Open(filepath.Join(dir, "ledger"))
	if err != nil {
		fail("%v", err)
		return
	}
	defer file.Close()
	given, cut := map[string]bool{}, map[string]bool{}
	for sc := bufio.NewScanner(file); sc.Scan(); sum.issuer.Add(1) {
		verb, id, _ := strings.Cut(sc.Text(), " ")
		if verb == "granted" {
			given[id] = true
		} else {
			delete(given, id)
			cut[id] = true
		}
	}
	for id := range given {
		fail("the issuer gave %s and was never asked to take it back", id)
	}
	for task, j := range tasks {
		for ref := range j.refs {
			if !cut[ref] {
				fail("task %s: access %s was never cut at its issuer", task, ref)
			}
		}
	}
}
