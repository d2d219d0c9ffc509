package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a Chromium with a profile of its own, looking at one host. What a
// page must never do is gathered while it is used, and fails the test.
type browser struct {
	t    *testing.T
	base string
	ctx  context.Context

	mu   sync.Mutex
	bad  []string
	seen map[string]int // requests by path
	// away says that the host is meant to be gone: requests may fail then.
	away bool
}

// newBrowser starts Chromium; it ends with the test.
func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is needed: hack/test-deps.sh installs it")
	}
	dir, err := os.MkdirTemp("", "alchrome")
	if err != nil {
		t.Fatal(err)
	}
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter"),
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(deadline),
		chromedp.Env("HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir),
	}
	actx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(actx)
	b := &browser{t: t, base: base, ctx: ctx, seen: map[string]int{}}
	t.Cleanup(func() {
		if t.Failed() {
			b.shot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		cancel()
		stop()
		b.check()
		if err := os.RemoveAll(dir); err != nil {
			time.Sleep(200 * time.Millisecond) // its helpers end after it
			_ = os.RemoveAll(dir)
		}
	})
	b.do("begin", enable(network.Enable, network.EnableParams{}), chromedp.Func(func(context.Context, *chromedp.Target) error {
		return chromedp.Listen(ctx, b.watch)
	}), enable(runtime.Enable, cdp.Empty{}), enable(log.Enable, cdp.Empty{}))
	return b
}

// enable makes an action of a command that answers nothing.
func enable[P any](cmd cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, params)
		return err
	})
}

// watch notes errors in the console, violations of the policy (which the browser
// logs), and requests to anywhere else.
func (b *browser) watch(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		if ev.Type == "error" || ev.Type == "warning" || ev.Type == "assert" {
			var args []string
			for _, a := range ev.Args {
				args = append(args, string(a.Value)+a.Description)
			}
			b.bad = append(b.bad, fmt.Sprintf("console %s: %s", ev.Type, strings.Join(args, " ")))
		}
	case *runtime.EventExceptionThrown:
		b.bad = append(b.bad, fmt.Sprintf("exception: %s %+v", ev.ExceptionDetails.Text, ev.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		// A refusal that the page handles is logged by the browser as a failed load;
		// so is every request while the host is away.
		refusal := ev.Entry.Source == "network" && (b.away || strings.Contains(ev.Entry.Text, "status of 4") || strings.Contains(ev.Entry.Text, "status of 503"))
		if !refusal && (ev.Entry.Level == "error" || ev.Entry.Level == "warning") {
			b.bad = append(b.bad, fmt.Sprintf("log %s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(ev.Request.URL)
		if err == nil && (u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "ws" || u.Scheme == "wss") {
			b.seen[u.Path]++
			if u.Host != strings.TrimPrefix(b.base, "http://") {
				b.bad = append(b.bad, "a request to "+ev.Request.URL)
			}
			if strings.Contains(u.RawQuery, "code=") || strings.Contains(u.RawQuery, "token") {
				b.bad = append(b.bad, "a secret in a URL: "+ev.Request.URL)
			}
		}
	}
}

func (b *browser) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.bad {
		b.t.Errorf("the page did what it must not: %s", text)
	}
}

func (b *browser) setAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// bounded runs an action with a limit. The first one starts the browser, which
// lives as long as the context that it is started in: the limit is kept beside.
func bounded[T any](b *browser, a chromedp.Action[T]) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := chromedp.Run(b.ctx, a)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-time.After(deadline):
		var none T
		return none, context.DeadlineExceeded
	}
}

// do runs actions, or fails the test.
func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if _, err := bounded(b, chromedp.Steps(actions...)); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// eval gives what an expression gives.
func eval[T any](b *browser, js string) T {
	b.t.Helper()
	v, err := bounded(b, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluate %s: %v", js, err)
	}
	return v
}

// until waits for an expression to be true.
func (b *browser) until(what, js string) {
	b.t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok, err := bounded(b, chromedp.Evaluate[bool]("Boolean("+js+")")); err == nil && ok {
			return
		}
	}
	b.t.Fatalf("it did not come to this in %v: %s\nthe page says: %s", deadline, what, eval[string](b, "document.body.innerText"))
}

// says waits until a part of the page has a text in it.
func (b *browser) says(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s says %q", selector, text),
		fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))", selector, text))
}

// press presses the button of a text within a part of the page.
func (b *browser) press(within, text string) {
	b.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%q)].find((e) => e.innerText.trim() === %q && !e.disabled)", within+" button", text)
	b.until("there is a button "+text, find)
	eval[bool](b, find+".click() === undefined")
}

// click clicks where an element is in sight, as a person would.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.do("click "+selector, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// fill types into a field.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.do("type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// shot keeps a screenshot where AIRLOCK_SHOTS says, for people to look at.
func (b *browser) shot(name string) {
	dir := os.Getenv("AIRLOCK_SHOTS")
	if dir == "" {
		return
	}
	png, err := bounded(b, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Logf("screenshot %s: %v", name, err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
		b.t.Log(err)
	}
}

// look sets the width of the page and its theme.
func (b *browser) look(width int64, theme string) {
	b.t.Helper()
	b.do("set the size", enable(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 500}),
		enable(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}))
}

// open goes to a view as the operator.
func (b *browser) open(hash string) {
	b.t.Helper()
	b.do("open the shell", chromedp.Navigate(b.base+"/"))
	eval[bool](b, `sessionStorage.setItem("airlock.token", "`+strings.Repeat("k3y-", 10)+`") === undefined`)
	b.do("open "+hash, chromedp.Navigate(b.base+"/"+hash), chromedp.Reload())
	b.until("it is signed in", `document.getElementById("whoami").innerText !== ""`)
}

// restBase is where the REST listener is.
func (r *rig) restBase() string {
	r.t.Helper()
	var code struct {
		URL string `json:"url"`
	}
	if status := r.call("POST", "/api/v1/ui/codes", map[string]any{}, &code); status != 201 {
		r.t.Fatalf("POST /api/v1/ui/codes: %d", status)
	}
	base, _, _ := strings.Cut(code.URL, "/#code=")
	return base
}
