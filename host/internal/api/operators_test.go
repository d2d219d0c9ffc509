package api_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

func TestBadOperatorBlocksLetNobodyIn(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("g", 32)
	tests := map[string]struct {
		text  string
		mode  os.FileMode
		block config.Operator
		want  string
	}{
		"short":            {strings.Repeat("x", 31), 0o600, config.Operator{}, "31 characters"},
		"empty":            {"", 0o600, config.Operator{}, "empty"},
		"only a newline":   {"\n", 0o600, config.Operator{}, "empty"},
		"two lines":        {strings.Repeat("x", 32) + "\n" + strings.Repeat("y", 32), 0o600, config.Operator{}, "blanks"},
		"readable by all":  {strings.Repeat("x", 32), 0o644, config.Operator{}, "chmod 600"},
		"too long":         {strings.Repeat("x", 5000), 0o600, config.Operator{}, "5000 bytes"},
		"missing":          {"", 0, config.Operator{TokenFile: "/nonexistent/token"}, "no such file"},
		"unset variable":   {"", 0, config.Operator{TokenEnv: "NOT_SET"}, "NOT_SET"},
		"short variable":   {"", 0, config.Operator{TokenEnv: "SHORT"}, "5 characters"},
		"nothing":          {"", 0, config.Operator{}, "neither"},
		"role":             {strings.Repeat("x", 32), 0o600, config.Operator{Role: "admin"}, "role"},
		"another's token":  {good, 0o600, config.Operator{}, `"good" too`},
		"another's uid":    {"", 0, config.Operator{UIDs: []uint32{7}}, `"good" already`},
		"a token with nul": {strings.Repeat("x", 32) + "\x00", 0o600, config.Operator{}, "control"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := tt.block
			b.Name = "bad"
			if b.Role == "" {
				b.Role = "operator"
			}
			if tt.mode != 0 {
				b.TokenFile = filepath.Join(t.TempDir(), "token")
				if err := os.WriteFile(b.TokenFile, []byte(tt.text), tt.mode); err != nil {
					t.Fatal(err)
				}
			}
			env := map[string]string{"GOOD": good, "SHORT": "short"}
			ops, err := api.LoadOperators([]config.Operator{
				{Name: "good", TokenEnv: "GOOD", Role: "operator", UIDs: []uint32{7}}, b,
			}, func(k string) string { return env[k] })
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `operator "bad"`) {
				t.Fatalf("error = %v, want %q", err, tt.want)
			}
			if strings.Contains(err.Error(), strings.Repeat("x", 10)) || strings.Contains(err.Error(), good) {
				t.Errorf("the error shows the token: %v", err)
			}
			h := apitest.New(t, func(o *api.Options) { o.Operators = ops })
			call(t, h, good, "GET", "/api/v1/missions", "").want(t, 200)
			for _, token := range []string{"", strings.TrimSpace(tt.text), "short"} {
				if token != good && !strings.ContainsAny(token, "\n\x00") && len(token) < 1000 {
					call(t, h, token, "GET", "/api/v1/missions", "").want(t, 401)
				}
			}
		})
	}
}

func TestNoOperatorsMeansNobody(t *testing.T) {
	t.Parallel()
	for _, ops := range []*api.Operators{nil, {}} {
		h := apitest.New(t, func(o *api.Options) { o.Operators = ops })
		call(t, h, "", "GET", "/api/v1/missions", "").want(t, 401)
		call(t, h, apitest.AliceToken, "GET", "/api/v1/missions", "").want(t, 401)
		if r := viaSocket(t, h, "", "GET", "/api/v1/missions"); r.status != 401 {
			t.Errorf("socket: %d", r.status)
		}
	}
}

func TestOperatorsCanBeReplacedWhileServing(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	fresh := strings.Repeat("n", 40)
	ops, err := api.LoadOperators([]config.Operator{{Name: "new", TokenEnv: "T", Role: "viewer"}}, func(string) string { return fresh })
	if err != nil {
		t.Fatal(err)
	}
	h.Server.SetOperators(ops)
	call(t, h, apitest.AliceToken, "GET", "/api/v1/missions", "").want(t, 401)
	call(t, h, fresh, "GET", "/api/v1/missions", "").want(t, 200)
}

// viaSocket makes a request over the operator socket.
func viaSocket(t *testing.T, h *apitest.Host, token, method, path string) reply {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", h.Socket)
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://operator"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func TestOperatorSocketKnowsWhoConnects(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	if r := viaSocket(t, h, "", "POST", "/api/v1/missions/m1/pause"); r.status != 200 {
		t.Errorf("alice by uid: %d %s", r.status, r.body)
	}
	if events := viaSocket(t, h, "", "GET", "/tasks/m1/events").body; !strings.Contains(events, `"actor":"alice"`) {
		t.Errorf("events = %s", events)
	}
	if r := viaSocket(t, h, apitest.VicToken, "POST", "/api/v1/missions/m1/resume"); r.status != 403 {
		t.Errorf("vic by token on alice's socket: %d", r.status)
	}
	if r := viaSocket(t, h, strings.Repeat("x", 32), "GET", "/api/v1/missions"); r.status != 401 {
		t.Errorf("a wrong token is not mended by a right uid: %d", r.status)
	}
}

func TestUIDThatIsNotListedNeedsAToken(t *testing.T) {
	t.Parallel()
	other := uint32(os.Geteuid()) + 1 //nolint:gosec // a uid
	env := map[string]string{"V": apitest.VicToken}
	ops, err := api.LoadOperators([]config.Operator{
		{Name: "other", Role: "operator", UIDs: []uint32{other}}, {Name: "vic", Role: "viewer", TokenEnv: "V"},
	}, func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	h := apitest.New(t, func(o *api.Options) { o.Operators = ops })
	if r := viaSocket(t, h, "", "GET", "/api/v1/missions"); r.status != 401 || !strings.Contains(r.body, "uids") {
		t.Errorf("not listed: %d %s", r.status, r.body)
	}
	if r := viaSocket(t, h, apitest.VicToken, "GET", "/api/v1/missions"); r.status != 200 {
		t.Errorf("with a token: %d", r.status)
	}
}

func TestOperatorSocketsFile(t *testing.T) {
	t.Parallel()
	self := uint32(os.Geteuid()) //nolint:gosec // a uid
	for name, tt := range map[string]struct {
		uids []uint32
		mode os.FileMode
	}{
		"nobody": {nil, 0o600}, "its owner": {[]uint32{self}, 0o600}, "root too": {[]uint32{self, 0}, 0o600}, "several": {[]uint32{self + 1, self + 2}, 0o666},
	} {
		dir, err := os.MkdirTemp("", "al")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		l, err := api.ListenOperator(dir, tt.uids)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, api.SocketName)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != tt.mode {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
		if _, err := api.ListenOperator(dir, tt.uids); err == nil || !strings.Contains(err.Error(), "another host") {
			t.Errorf("%s: a second host: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: the socket is still there: %v", name, err)
		}
	}
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, api.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	l, err := api.ListenOperator(dir, nil)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	_ = l.Close()
	if err := os.WriteFile(filepath.Join(dir, api.SocketName), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ListenOperator(dir, nil); err == nil {
		t.Error("a file was replaced by the socket")
	}
}
