package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/airlock-host/airlock/sdk/governance"
)

// story is one run of it.
type story struct {
	host        *host
	issuer      *issuer
	interactive bool

	task    string // the task's URL
	agent   *governance.Client
	told    uint64 // the last event that was printed
	tools   map[string]string
	receipt map[string]any
}

// order is what the agent's tools take.
type order struct {
	OrderID string `json:"order_id"`
	Amount  int    `json:"amount,omitempty"`
}

// tell runs the story from its beginning to its end.
func (s *story) tell(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	defer s.agent.Close()
	readOrder := governance.Attach(s.agent, "read_order", func(_ context.Context, o order) (order, error) { return order{o.OrderID, 850}, nil })
	refund := governance.Attach(s.agent, "refund", s.refund)
	if _, err := readOrder(ctx, order{OrderID: "order-123"}); err != nil {
		return err
	}
	if err := s.agent.RecordAccess(ctx, governance.Access{Kind: "session", Issuer: "payments", Ref: "pay-session-1"}); err != nil {
		return err
	}
	// Approved: it runs, once.
	answered := s.answer(ctx, "approve_once", "the customer is right")
	if _, err := refund(ctx, order{"order-123", 850}); err != nil && !s.interactive {
		return err
	}
	if err := <-answered; err != nil {
		return err
	}
	// Rejected: it does not.
	answered = s.answer(ctx, "reject", "paid out already")
	var blocked *governance.Blocked
	if _, err := refund(ctx, order{"order-124", 900}); !errors.As(err, &blocked) && !s.interactive {
		return fmt.Errorf("the rejected refund was not blocked: %w", err)
	}
	if err := <-answered; err != nil {
		return err
	}
	if err := s.narrate(ctx); err != nil {
		return err
	}
	return s.stop(ctx, refund)
}

// open opens the task and records where it is.
func (s *story) open(ctx context.Context) error {
	var task struct {
		URL   string `json:"url"`
		Token string `json:"token"`
	}
	err := s.host.ask(ctx, s.host.socket, "POST", "http://operator/tasks", map[string]any{
		"task_id": "order-task", "objective": "settle the complaint about order-123",
		"plan": []map[string]string{{"tool_name": "read_order"}, {"tool_name": "refund"}},
	}, &task)
	if err != nil {
		return err
	}
	s.task, s.tools = task.URL, map[string]string{}
	fmt.Println("task      ", task.URL)
	if s.interactive {
		if err := s.openRoom(ctx, task.URL); err != nil {
			return err
		}
	}
	s.agent, err = governance.New(task.URL, task.Token, governance.Options{})
	return err
}

// openRoom opens the Control Room as `airlock ui` does, with a link that works
// once, and says how else the human can answer.
func (s *story) openRoom(ctx context.Context, task string) error {
	var room struct {
		URL string `json:"url"`
	}
	if err := s.host.ask(ctx, s.host.socket, "POST", "http://operator/api/v1/ui/codes", map[string]any{}, &room); err != nil {
		return err
	}
	sock := filepath.Join(s.host.dir, "run", "airlock.sock")
	fmt.Printf(`
Open the Control Room (the link works once, within a minute; for another one:
airlock ui --addr %[1]s):

  %[2]s

Approve or reject what waits in its inbox, then stop the task. Or in another
terminal:

  export SIDECAR_ENDPOINT=%[3]s SIDECAR_OPERATOR_TOKEN=$(cat %[4]s)
  airlock status --follow

`, sock, room.URL, task, filepath.Join(s.host.dir, "operator.token"))
	return nil
}

// stopped waits until the human has stopped the task, and reads the receipt.
func (s *story) stopped(ctx context.Context) error {
	fmt.Println("\nStop the task in the Control Room (or: airlock control stop); then its receipt comes here.")
	for {
		var st struct {
			State string `json:"state"`
		}
		if err := s.host.operator(ctx, "GET", s.task+"/status", nil, &st); err != nil {
			return err
		}
		if st.State == "STOPPED" {
			// The latch holds before the journal has the stop: there may be no receipt yet.
			if s.host.operator(ctx, "GET", s.task+"/stops/latest", nil, &s.receipt) == nil && s.receipt["final"] == true {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *story) ledger() string { return filepath.Join(s.host.dir, "ledger.jsonl") }

// refund is the side effect: a line in a ledger.
func (s *story) refund(_ context.Context, o order) (string, error) {
	f, err := os.OpenFile(s.ledger(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	err = json.NewEncoder(f).Encode(o)
	return "paid", errors.Join(err, f.Close())
}

// answer is the human: it waits until a call waits, and answers over HTTP. In an
// interactive run somebody else is.
func (s *story) answer(ctx context.Context, action, why string) <-chan error {
	done := make(chan error, 1)
	go func() {
		for {
			var st struct {
				State   string `json:"state"`
				Pending []struct {
					DecisionID string `json:"decision_id"`
				} `json:"pending_approvals"`
			}
			if err := s.host.operator(ctx, "GET", s.task+"/status", nil, &st); err != nil {
				done <- err
				return
			}
			if st.State == "STOPPED" { // by the human, before this call came to wait
				done <- nil
				return
			}
			if len(st.Pending) == 0 {
				select {
				case <-ctx.Done():
					done <- ctx.Err()
					return
				case <-time.After(20 * time.Millisecond):
				}
				continue
			}
			if err := s.narrate(ctx); err != nil || s.interactive {
				done <- err
				return
			}
			done <- s.host.operator(ctx, "POST", s.task+"/approval", map[string]any{
				"decision_id": st.Pending[0].DecisionID, "action": action, "explanation": why}, nil)
			return
		}
	}()
	return done
}

// stop ends the agent's access and shows that nothing runs any more.
func (s *story) stop(ctx context.Context, refund func(context.Context, order) (string, error)) error {
	if s.interactive {
		if err := s.stopped(ctx); err != nil {
			return err
		}
	} else if err := s.host.operator(ctx, "POST", s.task+"/control?wait=60s", map[string]any{"action": "stop", "reason": "the complaint is settled"}, &s.receipt); err != nil {
		return err
	}
	var refused *governance.Error
	if _, err := refund(ctx, order{"order-125", 10}); !errors.As(err, &refused) || refused.Code != "stopped" {
		return fmt.Errorf("after the stop a refund was not refused: %w", err)
	}
	if err := s.narrate(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(s.ledger())
	if err != nil {
		return err
	}
	fmt.Printf("ledger     %d refund(s)\n", strings.Count(string(text), "\n"))
	fmt.Printf("access     %v (the issuer was asked for %d stop(s))\n", s.receipt["access_revocation"], s.issuer.stops())
	if s.interactive { // the host stays, so that the receipt can be read
		fmt.Println("\nThe receipt is in the Control Room. ^C ends the host, and its data with it.")
		<-ctx.Done()
		return nil
	}
	if strings.Count(string(text), "\n") != 1 || s.receipt["access_revocation"] != "acknowledged" {
		return errors.New("that is not the story: one refund, and access that is revoked")
	}
	return nil
}
