package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// watching is put into every page before its own scripts. awaited(name, test)
// resolves with when the frame was drawn that followed the change which made
// test true: {since: ms since the navigation began, at: ms of the wall clock}.
const watching = `globalThis.awaited = (test) => new Promise((resolve) => {
  const drawn = () => requestAnimationFrame(() => { const c = new MessageChannel(); c.port1.onmessage = () => {
    const now = performance.now(); resolve({since: now, at: performance.timeOrigin + now}); }; c.port2.postMessage(0); });
  if (test()) { drawn(); return; }
  const look = new MutationObserver(() => { if (test()) { look.disconnect(); drawn(); } });
  look.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
});`

// drawn is when something was in a frame.
type drawn struct {
	Since float64 `json:"since"` // ms since the navigation began
	At    float64 `json:"at"`    // ms of the wall clock
}

// tab is one page of a Chromium with a profile of its own.
type tab struct {
	ctx   context.Context
	close func()
}

// openTab starts Chromium, the program at path, without a cache.
func (b *bench) openTab(path string) (*tab, error) {
	dir, err := os.MkdirTemp(b.dir, "c")
	if err != nil {
		return nil, err
	}
	actx, stop := chromedp.NewExecAllocator(b.ctx, chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.Headless,
		chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(patience), chromedp.Env("HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir))
	ctx, cancel := chromedp.NewContext(actx)
	t := &tab{ctx, func() { cancel(); stop() }}
	yes := true
	_, err = within(t, chromedp.Func(func(ctx context.Context, c *chromedp.Target) error {
		_, err1 := cdp.Call(ctx, c, network.Enable, network.EnableParams{})
		_, err2 := cdp.Call(ctx, c, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: yes})
		_, err3 := cdp.Call(ctx, c, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watching})
		return errors.Join(err1, err2, err3)
	}))
	if err != nil {
		t.close()
		return nil, fmt.Errorf("chromium: %w", err)
	}
	return t, nil
}

// within runs an action with a limit; the browser lives as long as the tab's
// context, so that the limit is kept beside.
func within[T any](t *tab, a chromedp.Action[T]) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := chromedp.Run(t.ctx, a)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-time.After(patience):
		var none T
		return none, errors.New("the browser did not come to it in time")
	}
}

// value gives what an expression gives, a promise what it resolves with.
func value[T any](t *tab, js string) (T, error) {
	v, err := within(t, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		err = fmt.Errorf("%s: %w", js, err)
	}
	return v, err
}

// visit opens an address anew, from another page of the same server (the start
// of a renderer for another site is the browser's), and gives when test was true
// in a frame.
func (t *tab) visit(url, test string) (drawn, error) {
	base, _, _ := strings.Cut(url, "#")
	if _, err := within(t, chromedp.Steps(chromedp.Navigate(base+"livez"), chromedp.Navigate(url))); err != nil {
		return drawn{}, err
	}
	return value[drawn](t, "awaited(() => "+test+")")
}

// firstPaint is when the browser first drew something of the page, in ms since
// the navigation began.
func (t *tab) firstPaint() (float64, error) {
	return value[float64](t, `new Promise((resolve) => new PerformanceObserver((list) => {
		for (const e of list.getEntries()) if (e.name === "first-contentful-paint") resolve(e.startTime); }).observe({type: "paint", buffered: true}))`)
}

// heap is what the page's objects take after a collection, in MB.
func (t *tab) heap() (float64, error) {
	return within(t, func(ctx context.Context, c *chromedp.Target) (float64, error) {
		if _, err := cdp.Call(ctx, c, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return 0, err
		}
		return chromedp.Evaluate[float64]("performance.memory.usedJSHeapSize / 1e6")(ctx, c)
	})
}

// chromium is the browser's path.
func chromium() (string, error) { return exec.LookPath("chromium") }
