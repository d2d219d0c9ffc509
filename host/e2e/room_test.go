package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/airlock-host/airlock/host/internal/screen"
)

// The views as they look, light and dark, wide and narrow: what no view may do is
// checked for each, and AIRLOCK_SHOTS=DIR keeps a picture of each.
func TestControlRoomViews(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{governance: harnessRules, policy: harnessPolicy, runtime: `prompts = ["\\(y/n\\)\\s*$"]`})
	_, token := r.harnessTask("order-task")
	r.callAs(token, "POST", "/tasks/order-task/proposals", map[string]any{"tool_name": "refund", "tool_args": map[string]any{"order": "o-1", "amount": 850}}, nil)
	r.callAs(token, "POST", "/tasks/order-task/proposals", map[string]any{"tool_name": "delete_order", "tool_args": map[string]any{}}, nil)
	evil := `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`
	ids := map[string]string{
		"colours": `printf '\033[1;32mgreen\033[0m \033[31mred\033[0m %s\n' '` + evil + `'; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do echo "line $i"; done; sleep 600`,
		"asks":    `printf 'Delete the old backups? (y/n) '; read a; echo "answer: $a"; sleep 600`,
		"fails":   `echo "disk full" >&2; exit 3`,
		evil:      `echo hello`,
	}
	for id, objective := range ids {
		if status := r.call("POST", "/api/v1/missions", map[string]any{"mission_id": id, "objective": objective}, nil); status != 202 {
			t.Fatalf("dispatch %s: %d", id, status)
		}
	}
	r.until("the question is asked", func() bool {
		var q struct{ Questions []map[string]any }
		r.call("GET", "/api/v1/hitl", nil, &q)
		return len(q.Questions) == 2
	})
	r.until("two have ended", func() bool {
		var l struct{ Missions []map[string]any }
		r.call("GET", "/api/v1/missions?state=done,failed", nil, &l)
		return len(l.Missions) == 2
	})
	b := newBrowser(t, r.restBase())
	for _, width := range []int64{1280, 380} {
		for _, theme := range []string{"light", "dark"} {
			if (width == 1280) != (theme == "light") && os.Getenv("AIRLOCK_SHOTS") == "" {
				continue // for pictures only
			}
			b.look(width, theme)
			for view, waits := range map[string]string{
				"#/missions": "Delete the old backups", "#/missions/colours": "line 30", "#/missions/order-task": "refunds above 500",
				"#/missions/asks": "Delete the old backups", "#/missions/fails": "exit code 3", "#/inbox": "refunds above 500", "#/host": "host-supervisor", "#/journals": "Verify",
				"#/missions/" + escape(evil): "hello",
			} {
				b.open(view)
				b.says("main", waits)
				if over := eval[float64](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s at %d px scrolls sideways by %v", view, width, over)
				}
				if title := eval[string](b, "document.title"); strings.Contains(title, "owned") && !strings.Contains(title, "<img") {
					t.Errorf("%s: markup of a mission was carried out", view)
				}
				if n := eval[int](b, "document.querySelectorAll('main img, main script, main iframe').length"); n != 0 {
					t.Errorf("%s: %d elements that only markup could have made", view, n)
				}
				name := strings.NewReplacer("#/", "", "/", "-").Replace(view)
				if len(name) > 40 {
					name = "evil"
				}
				b.shot(name + "-" + theme + "-" + map[bool]string{true: "narrow", false: "wide"}[width < 500])
			}
		}
	}
}

// What an operator does from the Control Room alone: opens it with a link that
// works once, answers a question, rejects a call, approves one, modifies the
// intent, stops, and reads whether the credentials are revoked.
func TestControlRoomAsAnOperator(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "issuer.key")
	write(t, key, issuerSecret, 0o600)
	bank := newIssuer(t)
	r := newRig(t, settings{governance: harnessRules, policy: harnessPolicy, runtime: `prompts = ["\\(y/n\\)\\s*$"]`,
		extra: revokers(filepath.Dir(key), map[string]*issuer{"bank": bank})})
	b := newBrowser(t, r.restBase())
	var code struct {
		URL string `json:"url"`
	}
	r.call("POST", "/api/v1/ui/codes", map[string]any{}, &code)
	b.do("open the link", chromedp.Navigate(code.URL))
	b.until("it is signed in", `document.getElementById("whoami").innerText === "e2e"`)
	b.until("the code is out of the address", `location.hash === "#/missions"`)
	if tokens := eval[int](b, "sessionStorage.length + localStorage.length"); tokens != 1 {
		t.Errorf("%d things are stored", tokens)
	}

	// A question.
	r.call("POST", "/api/v1/missions", map[string]any{"mission_id": "asks", "objective": `printf 'Go on? (y/n) '; read a; echo "answer: $a"; sleep 600`}, nil)
	b.says(".mission", "asks: Go on? (y/n)")
	b.click(`a[href="#/missions/asks"]`)
	b.says(".card", "Go on? (y/n)")
	b.fill(`.card input[aria-label="Answer"]`, "yes")
	b.press(".card", "Send answer")
	b.says(".term", "answer: yes")
	b.until("the question is gone", `!document.querySelector(".card")`)

	// A call is rejected, one approved, one judged under another intent.
	_, token := r.harnessTask("order-task")
	ask := func(id string, amount int) chan string {
		got := make(chan string, 1)
		go func() {
			var d struct {
				Decision struct{ Status, Reason string }
			}
			r.callAs(token, "POST", "/tasks/order-task/proposals", map[string]any{"proposal_id": id, "tool_name": "refund", "tool_args": map[string]any{"amount": amount}, "wait_s": 60}, &d)
			got <- d.Decision.Status + ": " + d.Decision.Reason
		}()
		return got
	}
	r.callAs(token, "POST", "/tasks/order-task/access", map[string]any{"kind": "session", "issuer": "bank", "ref": "s-1"}, nil)
	rejected := ask("p1", 900)
	b.click(`a[data-nav="inbox"]`)
	b.says(".card", "900")
	b.fill(`.card input[aria-label="Explanation"]`, "paid already")
	b.press(".card", "Reject")
	if got := <-rejected; got != "BLOCK: rejected by e2e: paid already" {
		t.Errorf("the rejected call: %s", got)
	}
	b.says("main", "Nothing waits for a human.")
	approved := ask("p2", 850)
	b.says(".card", "850")
	b.press(".card", "Approve once")
	if got := <-approved; !strings.HasPrefix(got, "ALLOW") {
		t.Errorf("the approved call: %s", got)
	}
	changed := ask("p3", 700)
	b.says(".card", "700")
	b.press(".card", "Modify intent…")
	eval[bool](b, `((a) => { const e = JSON.parse(a.value); e.goal = "refund at most 800"; e.constraints = {max_refund: 800};
		a.value = JSON.stringify(e, null, 2); a.dispatchEvent(new Event("input")); return true; })(document.querySelector(".card textarea"))`)
	b.says(".diff .plus", "refund at most 800")
	b.shot("modify-intent")
	b.press(".card", "Modify the intent and judge again")
	if got := <-changed; !strings.HasPrefix(got, "ALLOW") {
		t.Errorf("the call under another intent: %s", got)
	}

	// The stop, and what became of the credentials.
	b.open("#/missions/order-task")
	b.says("main", "refund at most 800")
	b.says("[data-credentials]", "In use")
	b.press(".missionhead", "Stop…")
	b.fill("dialog input", "enough")
	b.press("dialog", "Stop it now")
	b.says("[data-credentials=done]", "Yes, revoked")
	b.says(".receipt", "bank")
	if !bank.denies("s-1") {
		t.Error("the page says that access is revoked, the issuer does not")
	}
	b.says(".receipt", "enough")
	b.says(".ladder", "Issuers take the access back")
	b.shot("receipt-harness")
	b.press(".verify", "Verify the journal")
	b.says("[data-verdict=valid]", "every digest and link")

	// A mission in a cell.
	b.open("#/missions/asks")
	b.says(".term", "answer: yes")
	b.do("the shortcut", chromedp.KeyEvent("s"))
	b.says("dialog", "It ends for good")
	b.shot("stop-dialog")
	b.press("dialog", "Stop it now")
	b.says(".receipt", "proof")
	for _, rung := range []string{"latch", "tombstone", "cut", "freeze", "kill", "revoke"} {
		b.until("the rung "+rung, `document.querySelector(".ladder [data-rung=`+rung+`].done")`)
	}
	b.says(".missionhead", "stopped")
	b.shot("receipt-cell")
	b.press("header", "Sign out")
	b.says("main", "Operator's token")

	// The link is good once.
	b.do("open the link again", chromedp.Navigate("about:blank"), chromedp.Navigate(code.URL))
	b.says("main", "This link was used already")
}

// The host goes away in the middle: the page says so, and goes on by itself when
// the host is back.
func TestControlRoomWhenTheHostIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{samePort: true})
	r.call("POST", "/api/v1/missions", map[string]any{"mission_id": "long", "objective": "echo before; while [ ! -e go ]; do sleep 0.1; done; echo after; sleep 600"}, nil)
	b := newBrowser(t, r.restBase())
	b.open("#/missions/long")
	b.says(".term", "before")
	b.setAway(true)
	r.end(syscall.SIGKILL)
	b.says("#banner", "The host does not answer")
	b.press(".missionhead", "Pause")
	b.says(".missionhead .error", "does not answer")
	b.shot("away")
	r.start()
	b.until("the bar is gone", `document.getElementById("banner").hidden`)
	b.setAway(false)
	write(t, filepath.Join(r.work, "go"), "", 0o600)
	b.says(".term", "after")
	b.until("the events went on", `[...document.querySelectorAll(".events li")].some((e) => e.dataset.kind === "reconnected")`)
}

// The terminal's own colours are those that the host resolves contrast against.
func TestTheTerminalHasTheHostsColours(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	resp, err := http.Get(r.restBase() + "/ui/style.css")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	css, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"term-ink": screen.Foreground, "term-bg": screen.Background} {
		got := regexp.MustCompile(`--`+name+`: (#[0-9a-f]+);`).FindAllStringSubmatch(string(css), -1)
		if len(got) != 1 || got[0][1] != want {
			t.Errorf("--%s is %v, the host's is %s", name, got, want)
		}
	}
	if fmt.Sprintf("%.1f", screen.Contrast("#000000", "#ffffff")) != "21.0" {
		t.Error("contrast is not what WCAG says")
	}
}

// The refund story with a human in the Control Room: what `refund --interactive`
// prints is enough to approve, reject and stop, and to read what became of the
// access.
func TestTheRefundStoryInTheControlRoom(t *testing.T) {
	t.Parallel()
	demo := filepath.Join(t.TempDir(), "refund")
	build(t, demo, "./examples/refund")
	if _, err := os.Stat(filepath.Join(bin, "plugins", "airlock-revoker-webhook")); err != nil {
		build(t, filepath.Join(bin, "plugins", "airlock-revoker-webhook"), "./plugins/revoker/webhook")
	}
	out := &lockedBuffer{}
	cmd := exec.CommandContext(t.Context(), demo, "--bin", bin, "--interactive")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/#code=[0-9a-f]+`)
	url := ""
	for end := time.Now().Add(deadline); url == "" && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		url = link.FindString(out.String())
	}
	if url == "" {
		t.Fatalf("no link was printed:\n%s", out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the demo said:\n%s", out)
		}
	})
	base, _, _ := strings.Cut(url, "/#")
	b := newBrowser(t, base)
	b.do("open the link", chromedp.Navigate(url))
	b.says(".mission", "asks: Tool call refund waits for an approval")
	b.click(`a[data-nav="inbox"]`)
	b.says(".card", "order-123")
	b.press(".card", "Approve once")
	b.says(".card", "order-124")
	b.press(".card", "Reject")
	b.says("main", "Nothing waits for a human.")
	b.click(`a[data-nav="missions"]`)
	b.click(`a[href="#/missions/order-task"]`)
	b.says("[data-credentials]", "In use")
	b.says(".plan", "refund completed 1 of 2 proposed")
	b.press(".missionhead", "Stop…")
	b.press("dialog", "Stop it now")
	b.says("[data-credentials]", "Yes, revoked")
	for end := time.Now().Add(deadline); !strings.Contains(out.String(), "^C ends") && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	b.setAway(true) // its host goes with it
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the demo: %v", err)
		}
	case <-time.After(deadline):
		t.Error("the demo did not end after the stop")
	}
	for _, line := range []string{"ledger     1 refund(s)", "access     acknowledged"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q was not told:\n%s", line, out)
		}
	}
}
