package plugins

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestPluginLogsCannotForgeOrBreakTheHostsLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("misfit", "airlock-isolation-noisy")
	r.start("isolation.noisy.x")
	eventually(t, "the last line is logged", func() bool { return strings.Contains(r.log.String(), "the end") })
	if strings.ContainsAny(r.log.String(), "\x1b\x07") || strings.ContainsRune(r.log.String(), '\ufffd') {
		t.Error("raw bytes came through")
	}
	find := func(begin string) map[string]any {
		for _, entry := range r.log.lines() {
			if message, _ := entry["@message"].(string); strings.HasPrefix(message, begin) {
				if entry["plugin"] != "isolation.noisy.x" {
					t.Errorf("an entry of somebody else: %v", entry)
				}
				return entry
			}
		}
		t.Errorf("%q was not logged", begin)
		return nil
	}
	find(`\x1b[2J\x1b[31mred alert\x07`)
	find(`broken \xff\xfe utf-8`)
	find(`{"@message":5,`)
	find("deep")
	forged := find(`forged\x0aline`)
	if forged["@timestamp"] == "2001-01-01T00:00:00Z" || forged["plugin_"] != "isolation.other.one" || forged["@level"] != "error" {
		t.Errorf("the forged entry: %v", forged)
	}
	long := find("long long long long ")
	if message, _ := long["@message"].(string); len(message) > maxLogLine+64 || long["cut_bytes"] == nil {
		t.Errorf("the long line has %d bytes, cut %v", len(message), long["cut_bytes"])
	}
	r.await("isolation.noisy.x", "health", healthy)
}

func TestAFloodOfLogLinesIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("misfit", "airlock-isolation-flood")
	r.start("isolation.flood.x")
	eventually(t, "a count of what was dropped", func() bool {
		for _, entry := range r.log.lines() {
			if n, _ := entry["dropped"].(float64); n > 100 && entry["plugin"] == "isolation.flood.x" {
				return true
			}
		}
		return false
	})
	if err := inspect(t, r, "isolation.flood.x"); status.Code(err) != codes.NotFound {
		t.Errorf("a call during the flood: %v", err)
	}
}

func TestWhatAPluginPrintsGoesToTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("misfit", "airlock-isolation-prints")
	r.start("isolation.prints.x")
	if s := r.status("isolation.prints.x"); s.State != Healthy {
		t.Fatalf("its prints broke the handshake: %s", s.Reason)
	}
	_ = inspect(t, r, "isolation.prints.x")
	eventually(t, "what was printed is logged", func() bool {
		return strings.Contains(r.log.String(), `"printed 0"`) && strings.Contains(r.log.String(), `"written"`)
	})
	eventually(t, "what was printed while serving is logged", func() bool {
		_ = inspect(t, r, "isolation.prints.x")
		return strings.Contains(r.log.String(), "printed while serving")
	})
}

func TestABigMessageIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("misfit", "airlock-isolation-big")
	r.start("isolation.big.x")
	if err := inspect(t, r, "isolation.big.x"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a reply of 100 MB: %v", err)
	}
	client, err := r.Isolation("isolation.big.x")
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.List(context.Background(), &pluginv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream message of 100 MB: %v", err)
	}
	if s := r.status("isolation.big.x"); s.State != Healthy {
		t.Errorf("afterwards: %+v", s)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":              "plain",
		"tab\there":          "tab here",
		"two\nlines\r":       `two\x0alines\x0d`,
		"\x1b[31m":           `\x1b[31m`,
		"\xc3\x28":           `\xc3(`,
		"héé 日本":             "héé 日本",
		"rtl\u202eover":      `rtl\u202eover`,
		"c1\u009b31m":        `c1\x9b31m`,
		"\ufffd":             "\ufffd",
		"0123456789abcdefgh": "0123456789abcdef…(+2 bytes)",
	} {
		if got := clean(in, 16); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}
