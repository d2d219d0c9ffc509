package main

import (
	"context"
	"sync/atomic"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/policy"
)

const version = "0.1.0"

// config is an instance's config block.
type config struct {
	URL     string `json:"url"`
	Token   string `json:"token"`
	Timeout string `json:"timeout"`
}

// judge is the plugin. Embedding Defaults and Unimplemented gives it the parts
// of the contract that it has no use for.
type judge struct {
	plugin.Defaults
	policy.Unimplemented

	endpoint atomic.Pointer[endpoint] // nil: not configured
}

// Describe says what the plugin is.
func (*judge) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Name: "http", Version: version,
		Summary: "Asks an HTTP endpoint for its opinion of each call.",
		Schema: plugin.Schema(
			plugin.String("url", "Where calls are posted to; http only for this machine.", plugin.Required(), plugin.URL()),
			plugin.String("token", "Sent as a bearer token; empty = none.", plugin.Sensitive()),
			plugin.String("timeout", "How long an answer may take, within the deadline of the host.", plugin.Duration(), plugin.Default("4s")),
		),
		Needs: []*pluginv1.Need{{What: "network", Value: "the endpoint", Reason: "to ask it about each call"}},
	}
}

// Configure reads the configuration. It may come again with another one.
func (j *judge) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	var c config
	if err := plugin.DecodeConfig(req.GetConfigJson(), &c); err != nil {
		return err
	}
	timeout := 4 * time.Second
	if c.Timeout != "" {
		var err error
		if timeout, err = time.ParseDuration(c.Timeout); err != nil || timeout <= 0 {
			return plugin.InvalidArgument("timeout: %q is not a duration above zero", c.Timeout)
		}
	}
	e, err := newEndpoint(c.URL, c.Token, timeout)
	if err != nil {
		return plugin.InvalidArgument("url: %v", err)
	}
	j.endpoint.Store(e)
	return nil
}

// Evaluate asks the endpoint. Whatever keeps it from a whole and known answer
// is an error: what that means is for the host's on_failure to say, and never
// that there is nothing to object.
func (j *judge) Evaluate(ctx context.Context, req *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	e := j.endpoint.Load()
	if e == nil {
		return nil, plugin.FailedPrecondition("the plugin is not configured")
	}
	body, err := question(req)
	if err != nil {
		return nil, plugin.InvalidArgument("%v", err)
	}
	text, err := e.post(ctx, body)
	if err != nil {
		return nil, plugin.Unavailable("%v", err)
	}
	findings, err := opinion(text)
	if err != nil {
		return nil, plugin.FailedPrecondition("the endpoint's answer: %v", err)
	}
	return &pluginv1.EvaluateResponse{Findings: findings}, nil
}
