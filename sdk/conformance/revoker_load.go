package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// revokerLoadChecks are the checks that need the Plugin service and the
// configuration. They come first: a later check may replace the process.
func revokerLoadChecks() []revokerCheck {
	return []revokerCheck{
		{"describe", "", describes},
		{"schema-has-descriptions", "", schemaDescribed},
		{"schema-secrets-sensitive", "", schemaSecrets},
		{"health-at-once", "", healthAtOnce},
		{"validate-good", "", validateGood},
		{"reconfigure-live", "", reconfigureLive},
		{"reconfigure-invalid-keeps-old", "", reconfigureInvalid},
	}
}

var (
	pluginName    = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	semanticVer   = regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)
	attributeName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	secretName    = regexp.MustCompile(`^(.*_)?(secret|password|token|passphrase|private_key|api_key)$`)
)

func (k *revokerKit) description(ctx context.Context) (*pluginv1.DescribeResponse, error) {
	d, err := k.opts.Plugin.Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return nil, fmt.Errorf("describe: %w", err)
	}
	return d, nil
}

func describes(ctx context.Context, k *revokerKit) error {
	d, err := k.description(ctx)
	if err != nil {
		return err
	}
	again, err := k.description(ctx)
	switch {
	case err != nil:
		return err
	case !proto.Equal(d, again):
		return errors.New("two descriptions differ")
	case d.GetKind() != pluginv1.Kind_KIND_REVOKER:
		return fmt.Errorf("the kind is %v", d.GetKind())
	case !pluginName.MatchString(d.GetName()):
		return fmt.Errorf("the name %q is none", d.GetName())
	case !semanticVer.MatchString(d.GetVersion()):
		return fmt.Errorf("the version %q is no semantic version", d.GetVersion())
	case !slices.Contains(d.GetContracts(), "airlock.plugin.v1"):
		return fmt.Errorf("the contracts %v do not have airlock.plugin.v1", d.GetContracts())
	case d.GetSummary() == "":
		return errors.New("there is no summary")
	case slices.Contains(d.GetFeatures(), featureGrants) != slices.Contains(k.opts.Features, featureGrants):
		return fmt.Errorf("the features are %v, the kit was told %v", d.GetFeatures(), k.opts.Features)
	}
	return nil
}

func schemaDescribed(ctx context.Context, k *revokerKit) error {
	d, err := k.description(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, a := range d.GetSchema().GetAttributes() {
		name := a.GetName()
		switch {
		case !attributeName.MatchString(name) || seen[name]:
			return fmt.Errorf("the attribute name %q is none, or there twice", name)
		case a.GetDescription() == "":
			return fmt.Errorf("%s has no description", name)
		case a.GetType() == "":
			return fmt.Errorf("%s has no type", name)
		case a.GetDefaultJson() != "" && !json.Valid([]byte(a.GetDefaultJson())):
			return fmt.Errorf("the default of %s is not JSON", name)
		case a.GetDefaultJson() != "" && a.GetRequired():
			return fmt.Errorf("%s is required and has a default", name)
		}
		seen[name] = true
	}
	return nil
}

// schemaSecrets: a secret that is not marked would be shown by status.
func schemaSecrets(ctx context.Context, k *revokerKit) error {
	d, err := k.description(ctx)
	if err != nil {
		return err
	}
	for _, a := range d.GetSchema().GetAttributes() {
		if secretName.MatchString(a.GetName()) && !a.GetSensitive() {
			return fmt.Errorf("%s sounds like a secret and is not sensitive", a.GetName())
		}
		if a.GetSensitive() && a.GetDefaultJson() != "" && a.GetDefaultJson() != `""` && a.GetDefaultJson() != "null" {
			return fmt.Errorf("the secret %s has a default", a.GetName())
		}
	}
	return nil
}

func healthAtOnce(ctx context.Context, k *revokerKit) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := k.opts.Plugin.Health(ctx, &pluginv1.HealthRequest{})
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	h, err := stream.Recv()
	switch {
	case err != nil:
		return fmt.Errorf("health: %w", err)
	case h.GetState() == pluginv1.HealthState_HEALTH_STATE_UNSPECIFIED:
		return errors.New("the health has no state")
	case h.GetState() != pluginv1.HealthState_HEALTH_STATE_HEALTHY && h.GetReason() == "":
		return fmt.Errorf("the health is %v without a reason", h.GetState())
	}
	return nil
}

func validateGood(ctx context.Context, k *revokerKit) error {
	if k.opts.Configure == nil {
		return notDeclared("the configuration is not known")
	}
	r, err := k.opts.Plugin.Validate(ctx, &pluginv1.ValidateRequest{ConfigJson: k.opts.Configure.GetConfigJson()})
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	for _, d := range r.GetDiagnostics() {
		if d.GetSeverity() != pluginv1.Severity_SEVERITY_WARNING {
			return fmt.Errorf("validate finds fault with the configuration in use: %s: %s", d.GetSummary(), d.GetDetail())
		}
	}
	return nil
}

// reconfigureLive: the configuration that is in force is taken again, and what
// was granted before can be revoked after.
func reconfigureLive(ctx context.Context, k *revokerKit) error {
	if k.opts.Configure == nil {
		return notDeclared("the configuration is not known")
	}
	task := k.task()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	if _, err := k.opts.Plugin.Configure(ctx, k.opts.Configure); err != nil {
		return fmt.Errorf("configure again: %w", err)
	}
	if err := k.accepted(ctx, g); err != nil {
		return fmt.Errorf("after a reconfigure: %w", err)
	}
	if _, err := k.cut(ctx, task, newID(), g.GetGrantId()); err != nil {
		return fmt.Errorf("after a reconfigure: %w", err)
	}
	return k.cutOff(ctx, g)
}

func reconfigureInvalid(ctx context.Context, k *revokerKit) error {
	if k.opts.Configure == nil {
		return notDeclared("the configuration is not known")
	}
	task := k.task()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	for _, bad := range []string{"{", "[]", `{"no_such_attribute": 1}`} {
		req := proto.Clone(k.opts.Configure).(*pluginv1.ConfigureRequest)
		req.ConfigJson = []byte(bad)
		_, err := k.opts.Plugin.Configure(ctx, req)
		if err := want(err, "the configuration "+bad, codes.InvalidArgument, codes.FailedPrecondition); err != nil {
			return err
		}
	}
	if _, err := k.cut(ctx, task, newID(), g.GetGrantId()); err != nil {
		return fmt.Errorf("after a bad configuration: %w", err)
	}
	return k.cutOff(ctx, g)
}
