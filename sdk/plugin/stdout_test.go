package plugin

import (
	"bytes"
	"strings"
	"testing"
)

type closer struct {
	bytes.Buffer
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestOnlyTheHandshakeReachesTheHost(t *testing.T) {
	t.Parallel()
	const line = "1|1|unix|/run/s/plugin1|grpc|\n"
	for name, c := range map[string]struct{ in, host, rest string }{
		"alone":         {line, "1|1|unix|/run/s/plugin1|grpc|CERT\n", ""},
		"junk before":   {"hello\n1|2|3\n" + line, "1|1|unix|/run/s/plugin1|grpc|CERT\n", "hello\n1|2|3\n"},
		"junk after":    {line + "hello\n" + line, "1|1|unix|/run/s/plugin1|grpc|CERT\n", "hello\n" + line},
		"no end":        {"half", "", "half"},
		"with mux flag": {"1|1|unix|/s|grpc||true\n", "1|1|unix|/s|grpc|CERT|true\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var host closer
			var rest bytes.Buffer
			filterHandshake(strings.NewReader(c.in), &host, &rest, "CERT")
			if host.String() != c.host || rest.String() != c.rest || host.closed != (c.host != "") {
				t.Errorf("host %q closed %v, rest %q", host.String(), host.closed, rest.String())
			}
		})
	}
}

func TestACertificateLetsOnlyItsHostIn(t *testing.T) {
	t.Parallel()
	_, hostPEM, err := NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	config, field, err := serverTLS(string(hostPEM))
	if err != nil || len(field) <= 50 || config.ClientAuth == 0 {
		t.Errorf("%v %q", err, field)
	}
	if _, _, err := serverTLS("garbage"); err == nil {
		t.Error("garbage is a certificate")
	}
}
