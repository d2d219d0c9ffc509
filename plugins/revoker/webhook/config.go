package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// minSecret is the shortest secret that is taken, in bytes.
const minSecret = 16

// config is an instance's config block.
type config struct {
	URL       string  `json:"url"`
	VerifyURL *string `json:"verify_url"`
	Secret    *string `json:"secret"` // null at validation, when it cannot be read
	Insecure  bool    `json:"insecure"`
	CAFile    *string `json:"ca_file"`
	Timeout   string  `json:"timeout"`
}

func schema() *pluginv1.ConfigSchema {
	return plugin.Schema(
		plugin.String("url", "Where the issuer takes revocations: https, or http on this machine.", plugin.Required(), plugin.URL()),
		plugin.String("verify_url", "Where the issuer says whether it still accepts grants. Without it Verify cannot tell.", plugin.URL()),
		plugin.String("secret", "Key of the signature that every request carries, at least 16 bytes.", plugin.Required(), plugin.Sensitive()),
		plugin.Bool("insecure", "Allow plain http to another machine. Whoever is on the way can then read the requests and "+
			"answer in the issuer's name.", plugin.Default(false)),
		plugin.String("ca_file", "PEM file of the authorities that may vouch for the issuer, instead of the system's.", plugin.AbsolutePath()),
		plugin.String("timeout", "How long one request may take, from dialling to the last byte of the answer.",
			plugin.Default("10s"), plugin.Duration()),
	)
}

// settings is a configuration that was found good.
type settings struct {
	url, verifyURL string
	secret         []byte
	timeout        time.Duration
	client         *http.Client
}

// Validate checks what the schema cannot.
func (*webhook) Validate(_ context.Context, raw []byte) []*pluginv1.Diagnostic {
	var c config
	if err := plugin.DecodeConfig(raw, &c); err != nil {
		return []*pluginv1.Diagnostic{plugin.Problem(nil, "The config cannot be read", err.Error())}
	}
	_, found := c.check()
	return found
}

// Configure takes every change live; calls under way end with what they began
// with.
func (w *webhook) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	var c config
	if err := plugin.DecodeConfig(req.GetConfigJson(), &c); err != nil {
		return err
	}
	if c.Secret == nil {
		return plugin.InvalidArgument("secret: there is none")
	}
	s, found := c.check()
	if len(found) > 0 {
		path := ""
		if steps := found[0].GetPath(); len(steps) > 0 {
			path = steps[0].GetAttribute() + ": "
		}
		return plugin.InvalidArgument("%s%s: %s", path, found[0].GetSummary(), found[0].GetDetail())
	}
	w.current.Store(s)
	w.Health().Healthy(map[string]string{"issuer": place(s.url)})
	return nil
}

func (c *config) check() (*settings, []*pluginv1.Diagnostic) {
	var found []*pluginv1.Diagnostic
	bad := func(attribute, summary, detail string) {
		found = append(found, plugin.Problem(plugin.Path(attribute), summary, detail))
	}
	s := &settings{url: c.URL}
	if summary, detail := c.checkURL(c.URL); summary != "" {
		bad("url", summary, detail)
	}
	if c.VerifyURL != nil {
		s.verifyURL = *c.VerifyURL
		if summary, detail := c.checkURL(*c.VerifyURL); summary != "" {
			bad("verify_url", summary, detail)
		}
	}
	if c.Secret != nil {
		s.secret = []byte(*c.Secret)
		if len(s.secret) < minSecret {
			bad("secret", "The secret is too short", fmt.Sprintf("It has %d bytes; a signature needs a key of at least %d.", len(s.secret), minSecret))
		}
	}
	timeout, err := time.ParseDuration(c.Timeout)
	if err != nil || timeout <= 0 {
		bad("timeout", "The time-out is none", "Give a duration above zero, for example 10s.")
	}
	s.timeout = timeout
	roots, err := c.roots()
	if err != nil {
		bad("ca_file", "The authorities cannot be read", err.Error())
	}
	s.client = newClient(roots, c.Insecure)
	return s, found
}

// checkURL is silent on a good URL.
func (c *config) checkURL(raw string) (summary, detail string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "The URL is none", "Give an http or https URL with a host."
	case u.User != nil:
		return "The URL carries a credential", "It would be in logs and status; requests are signed with secret instead."
	case u.Fragment != "":
		return "The URL has a fragment", "Nobody would ever see it; leave out the # and what follows."
	case u.Scheme == "http" && !c.Insecure && !loopback(u.Hostname()):
		return "Plain http to another machine", "Anybody on the way could answer in the issuer's name. Use https, or set insecure = true if the way is protected otherwise."
	}
	return "", ""
}

// loopback says whether a host is this machine by its name. What a name leads
// to is checked again when it is dialled.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (c *config) roots() (*x509.CertPool, error) {
	if c.CAFile == nil {
		return nil, nil // the system's
	}
	pem, err := os.ReadFile(*c.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", *c.CAFile)
	}
	return pool, nil
}

// place is a URL without what might be secret in it, for logs and status.
func place(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the issuer"
	}
	return u.Scheme + "://" + u.Host + u.Path
}
