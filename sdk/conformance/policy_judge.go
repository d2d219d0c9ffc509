package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func policyJudgeChecks() []policyCheck {
	return []policyCheck{
		{"judge-objects", judgeObjects},
		{"judge-passes", judgePasses},
		{"judge-away", judgeAway},
		{"judge-garbage", judgeGarbage},
		{"judge-stalls", judgeStalls},
		{"cancel", evaluateCancelled},
	}
}

func judgeObjects(ctx context.Context, k *policyKit) error {
	if k.opts.Judge.Object == nil {
		return notDeclared("no call is known that the plugin objects to")
	}
	r, err := k.evaluate(ctx, k.ask(k.opts.Judge.Object))
	if err != nil {
		return err
	}
	if got := worst(r); slices.Index(severities, got) < slices.Index(severities, k.opts.Judge.Severity) {
		return fmt.Errorf("the call that must be objected to gets %v, not %v or worse", got, k.opts.Judge.Severity)
	}
	return nil
}

func judgePasses(ctx context.Context, k *policyKit) error {
	if k.opts.Judge.Pass == nil {
		return notDeclared("no call is known that the plugin has nothing against")
	}
	r, err := k.evaluate(ctx, k.ask(k.opts.Judge.Pass))
	if err != nil {
		return err
	}
	if got := worst(r); got > pluginv1.Decision_DECISION_ALLOW {
		return fmt.Errorf("the call that nothing is against gets %v", got)
	}
	return nil
}

// judgeAway: an opinion that could not be had is an error, and never nothing
// to object. Once the judge is back, there are opinions again.
func judgeAway(ctx context.Context, k *policyKit) error {
	return k.trouble(ctx, "is away", k.opts.Judge.Away)
}

func judgeGarbage(ctx context.Context, k *policyKit) error {
	return k.trouble(ctx, "answers garbage", k.opts.Judge.Garbage)
}

func (k *policyKit) trouble(ctx context.Context, name string, begin func(context.Context) (func() error, error)) error {
	if begin == nil {
		return notDeclared("the judge cannot be made to: it %s", name)
	}
	back, err := begin(ctx)
	if err != nil {
		return fmt.Errorf("bring about that the judge %s: %w", name, err)
	}
	err = k.noConsent(ctx, k.request(), "a call while the judge "+name)
	if err := errors.Join(err, back()); err != nil {
		return err
	}
	return k.stillAnswers(ctx, "after the judge came back")
}

// judgeStalls: the plugin gives up by the deadline of the call, and keeps
// answering others.
func judgeStalls(ctx context.Context, k *policyKit) error {
	if k.opts.Judge.Stall == nil {
		return notDeclared("the judge cannot be stalled")
	}
	back, err := k.opts.Judge.Stall(ctx)
	if err != nil {
		return fmt.Errorf("stall the judge: %w", err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	r, err := k.call(short, k.request())
	cancel()
	if err == nil && worst(r) <= pluginv1.Decision_DECISION_ALLOW {
		err = errors.New("a call while the judge stalls is answered as if there were nothing to object")
	} else {
		err = nil
	}
	if err := errors.Join(err, back()); err != nil {
		return err
	}
	return k.stillAnswers(ctx, "after the judge stalled")
}

// evaluateCancelled: callers that give up cost the next one nothing.
func evaluateCancelled(ctx context.Context, k *policyKit) error {
	for range 32 {
		gone, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			_, err := k.call(gone, k.request())
			done <- err
		}()
		cancel()
		var malformed errMalformed
		if err := <-done; errors.As(err, &malformed) {
			return err
		}
	}
	return k.stillAnswers(ctx, "after callers that gave up")
}

func policyProcessChecks() []policyCheck {
	return []policyCheck{
		{"evaluate-after-restart", evaluateRestarted},
		{"arguments-not-in-log", argumentsNotInLog},
	}
}

// evaluateRestarted: a plugin holds nothing that the next process misses.
func evaluateRestarted(ctx context.Context, k *policyKit) error {
	if k.opts.Restart == nil {
		return notDeclared("the plugin cannot be restarted")
	}
	before, err := k.evaluate(ctx, k.request())
	if err != nil {
		return err
	}
	client, err := k.opts.Restart(ctx)
	if err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	k.mu.Lock()
	k.client = client
	k.mu.Unlock()
	after, err := k.evaluate(ctx, k.request())
	if err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	return sameRules("after a restart", before, after)
}

// argumentsNotInLog: arguments may hold secrets; they belong neither into the
// log nor into errors. It comes last.
func argumentsNotInLog(ctx context.Context, k *policyKit) error {
	req := k.request()
	req.Proposal.Tool = ""
	if _, err := k.call(ctx, req); status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("evaluate: %w", err)
	}
	k.mu.Lock()
	said := slices.Clone(k.said)
	k.mu.Unlock()
	for _, text := range said {
		if strings.Contains(text, canary) {
			return errors.New("an error of the plugin holds an argument's value")
		}
	}
	if k.opts.Logs != nil && strings.Contains(k.opts.Logs(), canary) {
		return errors.New("the plugin's log holds an argument's value")
	}
	return nil
}
