package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// The link that `airlock ui` prints opens the Control Room once and within a
// minute; after that it is of no use to anybody, and the code and the session's
// token are in no log, no file of the host and no history of the tab.
func TestTheLinkOfAirlockUI(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	var late roomCode
	text, code := r.cli("ui", "--json")
	if err := json.Unmarshal([]byte(text), &late); code != 0 || err != nil {
		t.Fatalf("airlock ui --json: %d %v %s", code, err, text)
	}
	text, code = r.cli("ui")
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/#code=([0-9a-f]{64})\n`).FindStringSubmatch(text)
	if code != 0 || link == nil || !strings.Contains(text, "works once") {
		t.Fatalf("airlock ui: %d %s", code, text)
	}
	url := strings.TrimSpace(link[0])

	b := newBrowser(t, r.restBase())
	b.do("open the link", chromedp.Navigate(url))
	b.until("it is signed in", `document.getElementById("whoami").innerText === "e2e"`)
	b.until("the list is there", `document.querySelector(".tabs")`)
	token := eval[string](b, `sessionStorage.getItem("airlock.token")`)
	if len(token) != 64 || token == link[1] {
		t.Errorf("the session's token is %d characters long", len(token))
	}
	secrets := map[string]string{"code": link[1], "token": token}
	b.hasForgotten(secrets)

	// Whoever finds the link now, in another tab or another browser, gets nothing.
	other := newBrowser(t, b.base)
	other.do("open the link again", chromedp.Navigate(url))
	other.says("main", "This link was used already, or is older than a minute.")
	if n := eval[int](other, "sessionStorage.length + localStorage.length + document.cookie.length"); n != 0 {
		t.Errorf("%d things are stored in a browser that was refused", n)
	}

	// Signed out, the session is over for whoever has kept its token.
	b.press("header", "Sign out")
	b.says("main", "Operator's token")
	b.until("the session is over", `fetch("/api/v1/whoami", {headers: {Authorization: "Bearer `+token+`"}}).then((r) => r.status === 401)`)
	r.hasNotKept(secrets)

	// And a link that nobody has opened is too old after a minute.
	if life := time.Until(late.ExpiresAt); life > time.Minute {
		t.Errorf("a code is good for %v", life)
	}
	for time.Now().Before(late.ExpiresAt.Add(time.Second)) {
		time.Sleep(100 * time.Millisecond)
	}
	other.do("open a link too late", chromedp.Navigate("about:blank"), chromedp.Navigate(late.URL))
	other.says("main", "This link was used already, or is older than a minute. Run airlock ui again.")
	r.hasNotKept(map[string]string{"late code": late.Code})
}

// roomCode is what `airlock ui --json` prints.
type roomCode struct {
	Code      string    `json:"code"`
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// hasForgotten looks for secrets in where the tab has been and in what it shows.
func (b *browser) hasForgotten(secrets map[string]string) {
	b.t.Helper()
	history, err := bounded(b, func(ctx context.Context, c *chromedp.Target) (page.GetNavigationHistoryResult, error) {
		return cdp.Call(ctx, c, page.GetNavigationHistory, cdp.Empty{})
	})
	if err != nil || len(history.Entries) == 0 {
		b.t.Fatalf("the tab's history: %v", err)
	}
	shown := eval[string](b, `location.href + document.referrer + document.documentElement.outerHTML + performance.getEntriesByType("resource").map((e) => e.name).join(" ")`)
	for name, secret := range secrets {
		for _, e := range history.Entries {
			if strings.Contains(e.URL, secret) {
				b.t.Errorf("the %s is in the tab's history: %s", name, e.URL)
			}
		}
		if strings.Contains(shown, secret) {
			b.t.Errorf("the %s is in the page", name)
		}
	}
}

// hasNotKept looks for secrets in the host's log and in every file of it.
func (r *rig) hasNotKept(secrets map[string]string) {
	r.t.Helper()
	files := 0
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what went away meanwhile has kept nothing
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		files++
		for name, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				r.t.Errorf("the %s is in %s", name, path)
			}
		}
		return nil
	})
	if err != nil || files < 5 {
		r.t.Errorf("%d files were read: %v", files, err)
	}
	for name, secret := range secrets {
		if strings.Contains(r.log.String(), secret) {
			r.t.Errorf("the %s is in the host's log", name)
		}
	}
}
