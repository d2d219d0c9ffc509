package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// TestMain is also the plugin, when a test starts it.
func TestMain(m *testing.M) {
	if os.Getenv(plugin.MagicCookieKey) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

// block is a config block as the host sends it: defaults filled in.
func block(t *testing.T, change map[string]any) []byte {
	t.Helper()
	all := map[string]any{}
	for _, a := range newWebhook().Describe().GetSchema().GetAttributes() {
		var v any
		if a.GetDefaultJson() != "" {
			if err := json.Unmarshal([]byte(a.GetDefaultJson()), &v); err != nil {
				t.Fatalf("default of %s: %v", a.GetName(), err)
			}
		}
		all[a.GetName()] = v
	}
	all["secret"] = secret
	maps.Copy(all, change)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func configured(t *testing.T, change map[string]any) *webhook {
	t.Helper()
	w := newWebhook()
	if err := w.Configure(t.Context(), &pluginv1.ConfigureRequest{ConfigJson: block(t, change)}); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, verifies := range map[string]bool{"with verify_url": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			change := map[string]any{"url": "http://" + i.address + "/revoke", "timeout": "500ms"}
			undeclared := []string{
				"grant-ok", "grant-idempotent", "grant-concurrent", "grant-odd-ids", "grant-after-revoke", "partial-failure-report",
			}
			if verifies {
				change["verify_url"] = "http://" + i.address + "/verify"
			} else {
				undeclared = append(undeclared, "verify")
			}
			dir, err := os.MkdirTemp("", "al")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			configure := &pluginv1.ConfigureRequest{Instance: "issuer", ConfigJson: block(t, change), StateDir: dir, RunDir: dir, HostId: "h"}
			p, err := conformance.StartRevoker(t.Context(), exe, dir, configure)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Stop)
			for _, c := range conformance.Revoker(t.Context(), p.Revoker(), conformance.RevokerOptions{
				Plugin: p.Plugin(), Configure: configure, HostID: "h", Issuer: i.hooks(), Restart: p.Restart, Logs: p.Logs, Secrets: []string{secret},
			}) {
				want := conformance.Pass
				if slices.Contains(undeclared, c.Name) {
					want = conformance.NotDeclared
				}
				if c.Result != want {
					t.Errorf("%s: %s, not %s: %s", c.Name, c.Result, want, c.Detail)
				}
			}
		})
	}
}

// TestOnlyTheLiteralTrueIsAnAcknowledgement: the body decides, and only with
// 2xx.
func TestOnlyTheLiteralTrueIsAnAcknowledgement(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	for name, tt := range map[string]struct {
		status    int
		body      string
		want      pluginv1.RevokeResult
		retryable bool
	}{
		"true":                   {200, `{"revoked": true}`, acknowledged, false},
		"true among others":      {201, ` {"detail": {"revoked": [1, {"x": null}]}, "revoked": true, "n": 1e9} ` + "\n", acknowledged, false},
		"false":                  {200, `{"revoked": false}`, refused, false},
		"a string":               {200, `{"revoked": "true"}`, refused, false},
		"a number":               {200, `{"revoked": 1}`, refused, false},
		"null":                   {200, `{"revoked": null}`, refused, false},
		"an array of it":         {200, `{"revoked": [true]}`, refused, false},
		"an object of it":        {200, `{"revoked": {"revoked": true}}`, refused, false},
		"an array around it":     {200, `[{"revoked": true}]`, refused, false},
		"deeper down":            {200, `{"result": {"revoked": true}}`, refused, false},
		"another case":           {200, `{"Revoked": true}`, refused, false},
		"an escape is the name":  {200, `{"revo\u006bed": true}`, acknowledged, false},
		"twice":                  {200, `{"revoked": true, "revoked": true}`, refused, false},
		"twice, escaped":         {200, `{"revoked": false, "revo\u006bed": true}`, refused, false},
		"another one twice":      {200, `{"revoked": true, "a": {"b": 1, "b": 2}}`, refused, false},
		"a bare true":            {200, `true`, refused, false},
		"empty":                  {200, ``, refused, false},
		"no content":             {204, ``, refused, false},
		"text":                   {200, `revoked: true`, refused, false},
		"something behind":       {200, `{"revoked": true} {"revoked": false}`, refused, false},
		"a letter behind":        {200, `{"revoked": true}x`, refused, false},
		"a comma too many":       {200, `{"revoked": true,}`, refused, false},
		"a comma in an array":    {200, `{"revoked": true, "a": [1,]}`, refused, false},
		"cut off":                {200, `{"revoked": true`, refused, false},
		"a byte order mark":      {200, "\xef\xbb\xbf" + `{"revoked": true}`, refused, false},
		"not UTF-8":              {200, `{"revoked": true, "a": "` + "\xff" + `"}`, refused, false},
		"too deep":               {200, `{"revoked": true, "a": ` + deep + `}`, refused, false},
		"too long":               {200, `{"revoked": true, "a": "` + strings.Repeat("x", maxAnswer) + `"}`, refused, false},
		"unauthorized":           {401, `{"revoked": true}`, refused, false},
		"not found":              {404, `{"revoked": true}`, refused, false},
		"conflict":               {409, `{"revoked": true}`, refused, false},
		"too many requests":      {429, `{"revoked": true}`, refused, true},
		"internal":               {500, `{"revoked": true}`, refused, true},
		"unavailable":            {503, `{"revoked": true}`, refused, true},
		"a redirect":             {307, `{"revoked": true}`, refused, false},
		"not modified, with one": {304, ``, refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer server.Close()
			w := configured(t, map[string]any{"url": server.URL + "/revoke?key=hidden-in-the-query"})
			r, err := w.Revoke(t.Context(), &pluginv1.RevokeRequest{Task: &pluginv1.TaskRef{TaskId: "t"}, StopId: "s"})
			if err != nil {
				t.Fatal(err)
			}
			if r.GetResult() != tt.want || r.GetRetryable() != tt.retryable || r.GetDetail() == "" {
				t.Errorf("answers %v, retryable %t: %s", r.GetResult(), r.GetRetryable(), r.GetDetail())
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("the issuer was asked %d times", n)
			}
			sum := sha256.Sum256([]byte(tt.body))
			if tt.want == acknowledged && string(r.GetEvidenceDigest()) != string(sum[:]) {
				t.Errorf("the evidence is %x", r.GetEvidenceDigest())
			}
			if strings.Contains(r.GetDetail(), "hidden") || tt.body != "" && strings.Contains(r.GetDetail(), tt.body) {
				t.Errorf("the detail tells too much: %s", r.GetDetail())
			}
		})
	}
}

func TestRequestIsWhatTheIssuerWasPromised(t *testing.T) {
	t.Parallel()
	type sent struct {
		header http.Header
		body   string
	}
	got := make(chan sent, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- sent{r.Header, string(b)}
		_, _ = io.WriteString(w, `{"revoked": true}`)
	}))
	defer server.Close()
	w := configured(t, map[string]any{"url": server.URL})
	w.now = func() time.Time { return time.Unix(1700000000, 0) }
	_, err := w.Revoke(t.Context(), &pluginv1.RevokeRequest{
		Task: &pluginv1.TaskRef{TaskId: "task/1"}, StopId: "stop 1\n", Grants: []string{"g"}, Sessions: []string{"s"}, Reason: "why",
	})
	if err != nil {
		t.Fatal(err)
	}
	req := <-got
	header, body := req.header, req.body
	if want := `{"task_id":"task/1","stop_id":"stop 1\n","grants":["g"],"sessions":["s"],"delegations":[],"reason":"why"}`; body != want {
		t.Errorf("the body is %s, want %s", body, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Idempotency-Key": "stop%201%0A",
		"Airlock-Signature": sign([]byte(secret), []byte(body), time.Unix(1700000000, 0)),
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestSignature holds the signature to a value from another implementation:
// printf '1700000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
func TestSignature(t *testing.T) {
	t.Parallel()
	want := "t=1700000000,v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e"
	if got := sign([]byte("0123456789abcdef"), []byte("{}"), time.Unix(1700000000, 0)); got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

func TestValidateLeadsToTheAttribute(t *testing.T) {
	t.Parallel()
	noPEM := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(noPEM, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change map[string]any
		want   []string
	}{
		"good":                   {nil, nil},
		"secret not readable":    {map[string]any{"secret": nil}, nil},
		"short secret":           {map[string]any{"secret": "fifteen bytes.."}, []string{"secret"}},
		"http elsewhere":         {map[string]any{"url": "http://issuer.example/"}, []string{"url"}},
		"http elsewhere, said":   {map[string]any{"url": "http://issuer.example/", "insecure": true}, nil},
		"http by address":        {map[string]any{"url": "http://127.0.0.1:1/"}, nil},
		"http by IPv6":           {map[string]any{"url": "http://[::1]:1/"}, nil},
		"a name like localhost":  {map[string]any{"url": "http://localhost.example/"}, []string{"url"}},
		"an address like it":     {map[string]any{"url": "http://127.0.0.1.example/"}, []string{"url"}},
		"all addresses":          {map[string]any{"url": "http://0.0.0.0/"}, []string{"url"}},
		"a password in the URL":  {map[string]any{"url": "https://u:p@issuer.example/"}, []string{"url"}},
		"a fragment":             {map[string]any{"url": "https://issuer.example/#x"}, []string{"url"}},
		"another scheme":         {map[string]any{"url": "ftp://issuer.example/"}, []string{"url"}},
		"verify_url, http":       {map[string]any{"verify_url": "http://issuer.example/"}, []string{"verify_url"}},
		"no authorities":         {map[string]any{"ca_file": "/does/not/exist"}, []string{"ca_file"}},
		"authorities, but empty": {map[string]any{"ca_file": noPEM}, []string{"ca_file"}},
		"no time":                {map[string]any{"timeout": "0s"}, []string{"timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := map[string]any{"url": "https://issuer.example/revoke"}
			maps.Copy(change, tt.change)
			var got []string
			for _, d := range newWebhook().Validate(context.Background(), block(t, change)) {
				if d.GetSummary() == "" || d.GetDetail() == "" || strings.Contains(fmt.Sprint(d), "fifteen") {
					t.Errorf("a finding without words, or with the secret: %v", d)
				}
				got = append(got, d.GetPath()[0].GetAttribute())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("findings at %v, want %v", got, tt.want)
			}
			err := newWebhook().Configure(context.Background(), &pluginv1.ConfigureRequest{ConfigJson: block(t, change)})
			if good := len(tt.want) == 0 && name != "secret not readable"; good != (err == nil) {
				t.Errorf("configure says %v", err)
			}
		})
	}
}

func TestTheIssuersCertificateIsChecked(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"revoked": true}`)
	}))
	server.Config.ErrorLog = nil
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		ca   any
		want pluginv1.RevokeResult
	}{"unknown": {nil, refused}, "known": {ca, acknowledged}} {
		w := configured(t, map[string]any{"url": server.URL, "ca_file": tt.ca})
		r, err := w.Revoke(t.Context(), &pluginv1.RevokeRequest{Task: &pluginv1.TaskRef{TaskId: "t"}, StopId: "s"})
		if err != nil || r.GetResult() != tt.want {
			t.Errorf("%s: %v %v %s", name, err, r.GetResult(), r.GetDetail())
		}
	}
}

// TestProxiesOfTheEnvironmentAreIgnored: whoever sets the environment must not
// get to answer.
func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	var asked atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Store(true)
		_, _ = io.WriteString(w, `{"revoked": true}`)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("ALL_PROXY", proxy.URL)
	w := configured(t, map[string]any{"url": "http://issuer.invalid/", "insecure": true, "timeout": "5s"})
	r, err := w.Revoke(t.Context(), &pluginv1.RevokeRequest{Task: &pluginv1.TaskRef{TaskId: "t"}, StopId: "s"})
	if err != nil || r.GetResult() != refused || !r.GetRetryable() || asked.Load() {
		t.Errorf("answers %v %v (%s), proxy asked: %t", err, r.GetResult(), r.GetDetail(), asked.Load())
	}
}

func TestPlainHTTPThatLeadsAwayIsNotDialled(t *testing.T) {
	t.Parallel()
	s := &settings{client: newClient(nil, false), timeout: 5 * time.Second}
	_, f := s.post(t.Context(), "http://192.0.2.1:9/", "", nil, time.Now())
	if f == nil || !strings.Contains(f.why, "another machine") {
		t.Errorf("says %v", f)
	}
}
