// Package fake holds a driver, a runtime and a revoker that work without an
// engine, an agent or an issuer, and that can be told to go wrong. Tests of the
// host and of the conformance kit use them, in one process or as real plugins
// (testdata holds their mains). It imports the sdk only.
//
// The one idea: a fault is named by the method it strikes and by what it does,
// as text, so that it can come from a test or through a plugin's config.
package fake

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// Faults is a set of faults; the zero value has none. It is safe for use from
// any goroutine.
type Faults struct {
	mu     sync.Mutex
	faults map[string]*fault
	calls  map[string]int
}

type fault struct {
	action string
	left   int // 0: for ever
}

// Set makes a method go wrong from now on. The action is one of
//
//	hang              answer only when the caller gives up
//	deaf              never answer, not even then
//	panic             panic in the handler
//	exit              end the process with code 7
//	delay:DURATION    answer later
//	CODE:MESSAGE      fail with a gRPC code, for example "Unavailable:no engine"
//
// An action that ends in "*N" strikes N times. An empty action takes the fault
// away.
func (f *Faults) Set(method, action string) error {
	next := &fault{action: action}
	if at := strings.LastIndex(action, "*"); at >= 0 {
		if _, err := fmt.Sscanf(action[at:], "*%d", &next.left); err != nil || next.left < 1 {
			return fmt.Errorf("fault %q of %s: want a count after the *", action, method)
		}
		next.action = action[:at]
	}
	if err := next.check(method); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults == nil {
		f.faults = make(map[string]*fault)
	}
	if action == "" {
		delete(f.faults, method)
		return nil
	}
	f.faults[method] = next
	return nil
}

// Replace takes all faults away and sets these, each "METHOD=ACTION".
func (f *Faults) Replace(list []string) error {
	f.mu.Lock()
	f.faults = nil
	f.mu.Unlock()
	for _, item := range list {
		method, action, ok := strings.Cut(item, "=")
		if !ok || method == "" || action == "" {
			return fmt.Errorf("fault %q is not METHOD=ACTION", item)
		}
		if err := f.Set(method, action); err != nil {
			return err
		}
	}
	return nil
}

// Calls is how often a method was called, struck or not.
func (f *Faults) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Hit counts a call and strikes if a fault is set for the method.
func (f *Faults) Hit(ctx context.Context, method string) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[method]++
	struck, ok := f.faults[method]
	if ok && struck.left > 0 {
		if struck.left--; struck.left == 0 {
			delete(f.faults, method)
		}
	}
	f.mu.Unlock()
	if !ok {
		return nil
	}
	return struck.strike(ctx, method)
}

func (x *fault) check(method string) error {
	switch word, rest, _ := strings.Cut(x.action, ":"); word {
	case "", "hang", "deaf", "panic", "exit":
		return nil
	case "delay":
		_, err := time.ParseDuration(rest)
		return err
	default:
		if _, ok := codeOf(word); !ok {
			return fmt.Errorf("fault %q of %s is not known", x.action, method)
		}
		return nil
	}
}

func (x *fault) strike(ctx context.Context, method string) error {
	word, rest, _ := strings.Cut(x.action, ":")
	switch word {
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "deaf":
		select {}
	case "panic":
		panic("fake: told to panic in " + method)
	case "exit":
		fmt.Fprintln(os.Stderr, "fake: told to exit in "+method)
		os.Exit(7)
	case "delay":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return err
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	code, ok := codeOf(word)
	if !ok {
		return plugin.FailedPrecondition("fake: fault %q of %s is not known", x.action, method)
	}
	return status.Error(code, rest)
}

func codeOf(name string) (codes.Code, bool) {
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return c, true
		}
	}
	return codes.OK, false
}
