package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const gatewayText = `
gateway "model" {
  upstream    = "https://api.example/base"
  allow_paths = ["/v1/messages*"]
  price "m" {
    input       = 3
    output      = 15
    cache_read  = 0.3
    cache_write = 3.75
  }
  price "*" {
    input  = 0.5
    output = 1
  }
  header "x-api-key" {
    value = secret("env:MODEL_KEY")
  }
}
agent "with-gateway" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  gateways  = [gateway.model]
  network {
    mode  = "gateway"
    allow = ["registry.example:443", "*.example.org:443", "127.0.0.1:8080", "10.0.0.0/8:*", "[::1]:53", "*:8443"]
  }
}
`

func withKey(o *Options) { keyOf("sk-canary")(o) }

func keyOf(value string) func(*Options) {
	return func(o *Options) {
		o.LookupEnv = func(name string) (string, bool) {
			if name == "MODEL_KEY" {
				return value, true
			}
			return "", false
		}
	}
}

func TestGatewayBlock(t *testing.T) {
	t.Parallel()
	cfg, diags := parse(t, minimalText+gatewayText, withKey)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	g, ok := cfg.Gateway("gateway.model")
	if !ok || g.Invalid != "" || g.Upstream != "https://api.example/base" || g.IdleTimeout != 2*time.Minute || g.TotalTimeout != 20*time.Minute {
		t.Errorf("%+v", g)
	}
	if len(g.Prices) != 2 || g.Prices[0] != (Price{"m", 3_000_000, 15_000_000, 300_000, 3_750_000}) || g.Prices[1] != (Price{"*", 500_000, 1_000_000, 0, 0}) {
		t.Errorf("prices %+v", g.Prices)
	}
	if len(g.Headers) != 1 || g.Headers[0].Name != "x-api-key" || g.Headers[0].Value.Reveal() != "sk-canary" {
		t.Errorf("headers %v", g.Headers)
	}
	text, err := json.Marshal(cfg.Gateways)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := json.Marshal(cfg.Summary(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(g), fmt.Sprintf("%+v %#v %s", g, g, g.Headers), string(text), string(sum)} {
		if strings.Contains(s, "sk-canary") {
			t.Errorf("the secret is printed: %s", s)
		}
	}
	if !strings.Contains(string(sum), `"x-api-key"`) {
		t.Errorf("summary %s", sum)
	}
	rotated, diags := parse(t, minimalText+gatewayText, keyOf("another"))
	if diags.HasErrors() || rotated.Digest() != cfg.Digest() {
		t.Error("a rotated secret changes the digest")
	}
}

// A gateway that cannot be used takes its agents along and nothing else.
func TestBadGatewaysAreQuarantined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, reason string }{
		"no key":             {`"env:MODEL_KEY"`, `"env:OTHER"`, "OTHER is not set"},
		"http elsewhere":     {"https://api", "http://api", "not a loopback address"},
		"bad path":           {`"/v1/messages*"`, `"v1"`, "does not begin with a slash"},
		"framing header":     {`"x-api-key"`, `"Content-Length"`, "not a header that a gateway can set"},
		"bad header":         {`"x-api-key"`, `"x api"`, "not a header that a gateway can set"},
		"price given twice":  {`price "*"`, `price "m"`, "in this gateway already"},
		"no price of output": {"    output      = 15\n", "", "output"},
		"bad time-out":       {`allow_paths = `, "idle_timeout = 5\n  allow_paths = ", "unit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(gatewayText, c.from) {
				t.Fatal(c.from)
			}
			cfg, diags := parse(t, minimalText+strings.Replace(gatewayText, c.from, c.to, 1), lenient, withKey)
			if diags.HasErrors() {
				t.Fatalf("the host does not start: %v", diags)
			}
			if g, _ := cfg.Gateway("gateway.model"); !strings.Contains(g.Invalid, c.reason) {
				t.Errorf("gateway: %q", g.Invalid)
			}
			for _, a := range cfg.Agents {
				if (a.Invalid != "") != (a.Name == "with-gateway") {
					t.Errorf("agent %s: %q", a.Name, a.Invalid)
				}
			}
		})
	}
}

func TestAllowEntries(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a:1", "A.example.:443", "*.a.example:1", "*:443", "a:*", "127.0.0.1:80", "10.0.0.0/8:5432", "[::1]:1", "[fd00::/8]:1"} {
		if err := allowEntry(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a", "a:0", "a:70000", "a:https", "a b:1", "**.a:1", "a.*.b:1", "::1:80", "[fe80::1%eth0]:1", ":80", "https://a:443", "10.0.0.0/99:1"} {
		if err := allowEntry(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
