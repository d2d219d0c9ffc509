package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func planChecks() []runtimeCheck {
	return []runtimeCheck{
		{"plan-valid", planValid},
		{"plan-repeatable", planRepeatable},
		{"plan-no-side-effects", planNoEffects},
		{"plan-hostile-objective", planHostile},
		{"plan-resume", planResume},
		{"plan-no-secrets", planNoSecrets},
		{"plan-unknown-enum-refused", planUnknownEnum},
		{"plan-empty-request-refused", planEmpty},
		{"plan-deadline", planDeadline},
		{"plan-concurrent", planConcurrent},
	}
}

func (k *runtimeKit) plan(ctx context.Context) (*pluginv1.LaunchPlan, error) {
	r, err := k.client.Plan(ctx, planRequest(k.opts.Mission))
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return r.GetPlan(), checkPlan(r.GetPlan())
}

// checkPlan is what a host refuses a plan for.
func checkPlan(p *pluginv1.LaunchPlan) error {
	if p == nil {
		return errors.New("the answer has no plan")
	}
	known := func(what string, n int32, names map[int32]string) error {
		if _, ok := names[n]; !ok || n == 0 {
			return fmt.Errorf("%s of the plan has the value %d, which is unspecified or not known", what, n)
		}
		return nil
	}
	if err := errors.Join(
		known("boundary", int32(p.GetBoundary()), pluginv1.Boundary_name),
		known("output", int32(p.GetOutput()), pluginv1.OutputNeed_name),
		known("on_full", int32(p.GetOnFull()), pluginv1.OnFull_name),
	); err != nil {
		return err
	}
	switch {
	case len(p.GetArgv()) == 0 || p.GetArgv()[0] == "":
		return errors.New("the plan has no program")
	case strings.Contains(strings.Join(p.GetArgv(), ""), "\x00"):
		return errors.New("an argument of the plan has a NUL byte")
	case p.GetCwd() != "" && !path.IsAbs(p.GetCwd()):
		return fmt.Errorf("the plan's working directory %q is not absolute", p.GetCwd())
	case p.GetBoundary() == pluginv1.Boundary_BOUNDARY_PROTOCOL && p.GetOnFull() != pluginv1.OnFull_ON_FULL_BLOCK:
		return errors.New("with boundary = protocol output must block when it is full: what is dropped could be a tool call")
	case p.GetBoundary() == pluginv1.Boundary_BOUNDARY_PROTOCOL && p.GetOutput() == pluginv1.OutputNeed_OUTPUT_NEED_NONE:
		return errors.New("with boundary = protocol the plugin must see the output")
	case p.GetWatchWaiting() && p.GetTerminal() == nil:
		return errors.New("watch_waiting needs a terminal")
	}
	for name, v := range p.GetEnv() {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(v, "\x00") {
			return fmt.Errorf("%q is no environment variable", name)
		}
	}
	for name, s := range p.GetSecretEnv() {
		if name == "" || s.GetSource() == nil {
			return fmt.Errorf("the secret for %q points nowhere", name)
		}
	}
	for _, f := range p.GetFiles() {
		if !path.IsAbs(f.GetPath()) || path.Clean(f.GetPath()) != f.GetPath() || len(f.GetContent()) > 8<<20 || f.GetMode()&^0o777 != 0 {
			return fmt.Errorf("the file %q has no clean absolute path, more than 8 MiB, or mode %o", f.GetPath(), f.GetMode())
		}
	}
	return nil
}

func planValid(ctx context.Context, k *runtimeKit) error {
	_, err := k.plan(ctx)
	return err
}

func planRepeatable(ctx context.Context, k *runtimeKit) error {
	req := planRequest(k.opts.Mission)
	first, err := k.client.Plan(ctx, req)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if err := k.again(ctx); err != nil {
		return err
	}
	second, err := k.client.Plan(ctx, req)
	if err != nil {
		return fmt.Errorf("plan again: %w", err)
	}
	if len(first.GetPlan().GetArgv()) != len(second.GetPlan().GetArgv()) || first.GetPlan().GetBoundary() != second.GetPlan().GetBoundary() ||
		first.GetPlan().GetArgv()[0] != second.GetPlan().GetArgv()[0] {
		return fmt.Errorf("the same mission is planned as %v and as %v", first, second)
	}
	return nil
}

// again restarts the plugin where that is possible.
func (k *runtimeKit) again(ctx context.Context) error {
	if k.opts.Restart == nil {
		return nil
	}
	client, err := k.opts.Restart(ctx)
	if err != nil {
		return fmt.Errorf("restart the plugin: %w", err)
	}
	k.client = client
	return nil
}

func planNoEffects(ctx context.Context, k *runtimeKit) error {
	if k.opts.Changed == nil {
		return notDeclared("nobody can look at what the plugin leaves behind")
	}
	if err := k.opts.Changed(); err != nil {
		return err
	}
	for range 3 {
		if _, err := k.plan(ctx); err != nil {
			return err
		}
	}
	if err := k.opts.Changed(); err != nil {
		return fmt.Errorf("plan has a side effect: %w", err)
	}
	return nil
}

// planHostile: an objective is text, and a mission id no file name.
func planHostile(ctx context.Context, k *runtimeKit) error {
	for _, objective := range []string{
		"`touch /tmp/x`; $(reboot) && \"'\\", "a\nb\r\nc\t", "--help", "日本語 🚀 \u202e", strings.Repeat("long ", 50_000), "\x00", "", " ", "\xff\xfe",
	} {
		for _, id := range []string{"a/../b", strings.Repeat("𝔘", 300)} {
			req := planRequest(k.opts.Mission)
			req.Mission = proto.CloneOf(req.GetMission())
			if !strings.Contains(objective, "\xff") { // proto3 strings are UTF-8; the wire refuses the rest
				req.Mission.Objective = objective
			}
			req.Mission.MissionId = id
			r, err := k.client.Plan(ctx, req)
			if err == nil {
				err = checkPlan(r.GetPlan())
			} else {
				err = want(err, fmt.Sprintf("plan of the objective %.40q", objective), codes.InvalidArgument, codes.FailedPrecondition)
			}
			if err != nil {
				return err
			}
			for _, f := range r.GetPlan().GetFiles() {
				if strings.Contains(f.GetPath(), id) {
					return fmt.Errorf("the mission's id is in the path %q", f.GetPath())
				}
			}
		}
	}
	return nil
}

func planResume(ctx context.Context, k *runtimeKit) error {
	for _, state := range [][]byte{nil, []byte("{}"), bytes.Repeat([]byte{0xff}, 1000)} {
		req := planRequest(k.opts.Mission)
		req.Resume = &pluginv1.ResumePoint{State: state, Reason: "the cell was lost"}
		r, err := k.client.Plan(ctx, req)
		if err == nil {
			err = checkPlan(r.GetPlan())
		} else if len(state) > 0 { // a state that it has not made may be refused
			err = want(err, "plan with a state that it has not made", codes.InvalidArgument, codes.FailedPrecondition)
		}
		if err != nil {
			return fmt.Errorf("plan of a resume: %w", err)
		}
	}
	return nil
}

func planNoSecrets(ctx context.Context, k *runtimeKit) error {
	p, err := k.plan(ctx)
	if err != nil {
		return err
	}
	if len(k.opts.Secrets) == 0 {
		return notDeclared("the configuration has no secret")
	}
	b, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	for _, s := range k.opts.Secrets {
		if bytes.Contains(b, []byte(s)) {
			return errors.New("a secret of the configuration is in the plan; point at it with secret_env")
		}
	}
	return nil
}

func planUnknownEnum(ctx context.Context, k *runtimeKit) error {
	req := planRequest(k.opts.Mission)
	req.Cell.Network = 99
	_, err := k.client.Plan(ctx, req)
	return want(err, "plan for a cell with an unknown network mode", codes.InvalidArgument)
}

func planEmpty(ctx context.Context, k *runtimeKit) error {
	_, err := k.client.Plan(ctx, &pluginv1.PlanRequest{})
	if err := want(err, "an empty plan request", codes.InvalidArgument); err != nil {
		return err
	}
	return planValid(ctx, k)
}

func planDeadline(ctx context.Context, k *runtimeKit) error {
	over, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	_, err := k.client.Plan(over, planRequest(k.opts.Mission))
	if err := want(err, "plan after its deadline", codes.DeadlineExceeded); err != nil {
		return err
	}
	short, cancelShort := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancelShort()
	begun := time.Now()
	_, err = k.client.Plan(short, planRequest(k.opts.Mission))
	if err != nil && status.Code(err) != codes.DeadlineExceeded {
		return fmt.Errorf("plan with a short deadline, after %v: %w", time.Since(begun), err)
	}
	return planValid(ctx, k)
}

func planConcurrent(ctx context.Context, k *runtimeKit) error {
	errs := make(chan error)
	const n = 30
	for range n {
		go func() {
			_, err := k.plan(ctx)
			errs <- err
		}()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}
