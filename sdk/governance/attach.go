package governance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrCancelRequested is the cause of a call's context once the host asks for its
// end. It is a request: what the function then does is recorded as it is.
var ErrCancelRequested = errors.New("the host asks for the call's end")

// Blocked says that a call must not run.
type Blocked struct{ Decision Decision }

func (b *Blocked) Error() string {
	return "the call is blocked: " + b.Decision.Verdict.Reason
}

// Suspended says that a call does not run now: the agent has to justify it
// (CHALLENGE) or to make another plan (REPLAN).
type Suspended struct{ Decision Decision }

func (s *Suspended) Error() string {
	return "the call is suspended (" + s.Decision.Verdict.Status + "): " + s.Decision.Verdict.Reason
}

// Attach makes a governed call of a function. A must be encoded as a JSON
// object. The error of a call that did not run is *Blocked, *Suspended, *Error
// or that of the way to the host; in mode observe the host lets it run.
func Attach[A, R any](c *Client, tool string, f func(ctx context.Context, args A) (R, error)) func(ctx context.Context, args A) (R, error) {
	return func(ctx context.Context, args A) (R, error) {
		var result R
		raw, err := encode(args)
		if err != nil {
			return result, fmt.Errorf("arguments of %s: %w", tool, err)
		}
		err = c.Call(ctx, Proposal{Tool: tool, Args: raw}, func(ctx context.Context, rewritten json.RawMessage) (json.RawMessage, error) {
			if rewritten != nil {
				args = *new(A)
				if err := json.Unmarshal(rewritten, &args); err != nil {
					return nil, fmt.Errorf("arguments of %s as a rule rewrote them: %w", tool, err)
				}
			}
			var err error
			if result, err = f(ctx, args); err != nil {
				return nil, err
			}
			out, err := encode(result)
			if err != nil {
				out = nil // a result that is no JSON has no digest
			}
			return out, nil
		})
		return result, err
	}
}

// encode is json.Marshal that leaves <, > and & as they are: rules look at what
// is sent.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Call puts one call through the gate and runs it if it may: between dispatch
// and completion, under a context that ends with ErrCancelRequested when the
// host asks for it. rewritten is nil unless a rule changed the arguments. The
// completion is sent also when ctx has ended, and when run panics.
func (c *Client) Call(ctx context.Context, p Proposal, run func(ctx context.Context, rewritten json.RawMessage) (json.RawMessage, error)) (err error) {
	d, err := c.Propose(ctx, p)
	if err != nil {
		return err
	}
	args := p.Args
	if d.UpdatedArgs != nil {
		args = d.UpdatedArgs
	}
	// Whether the verdict holds the call is the host's to say: it admits a
	// blocked one in mode observe.
	id, err := c.Dispatch(ctx, d.ID, p.Tool, args)
	if err != nil {
		return notDispatched(d, err)
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); c.watch(runCtx, id, cancel) }()
	began := time.Now()
	done := Completion{Outcome: Failed, Err: "the function panicked"}
	defer func() {
		cancel(nil)
		<-watched
		done.Duration = time.Since(began)
		if cerr := c.Complete(context.WithoutCancel(ctx), id, done); cerr != nil {
			err = errors.Join(err, fmt.Errorf("the end of the call (%s) is not recorded: %w", done.Outcome, cerr))
		}
	}()
	result, err := run(runCtx, d.UpdatedArgs)
	if err != nil {
		done.Err = err.Error()
		return err
	}
	done = Completion{Outcome: Succeeded, Result: result}
	return nil
}

// notDispatched says why a call did not run.
func notDispatched(d Decision, err error) error {
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != "not_allowed" || d.Runs() {
		return err
	}
	if d.Verdict.Status == "BLOCK" {
		return &Blocked{d}
	}
	return &Suspended{d}
}

// watchFor is how long one look at a running call is held.
const watchFor = time.Minute

// watch cancels a call when the host asks for it. While the host is away the
// call goes on: it was admitted.
func (c *Client) watch(ctx context.Context, id string, cancel context.CancelCauseFunc) {
	for ctx.Err() == nil {
		i, err := c.Invocation(ctx, id, watchFor)
		var refused *Error
		switch {
		case errors.As(err, &refused) && refused.Status < 500:
			return // it is not known any more; nobody will ask for its end
		case err != nil:
			continue
		case i.CancelRequested != nil:
			cancel(ErrCancelRequested)
			return
		case i.State != "started":
			return
		}
		select { // looked at in vain: the host stops, or the time is over
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
