package ui

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func room(t *testing.T) *Room {
	t.Helper()
	r, err := New(`1.2.3 <script>alert("x")</script>`)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ask(t *testing.T, r *Room, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	resp := w.Result()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestTheShellIsTheSameForEverybodyAndStrict(t *testing.T) {
	t.Parallel()
	resp, body := ask(t, room(t), "/", "Authorization", "Bearer "+strings.Repeat("s3cret", 8), "Cookie", "a=b")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Security-Policy") != policy || resp.Header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	for _, word := range []string{"unsafe", "http:", "https:", "data:", "*", "'none'; script-src *"} {
		if strings.Contains(policy, word) {
			t.Errorf("the policy allows %q", word)
		}
	}
	if strings.Contains(body, "s3cret") || strings.Contains(body, "<script>alert") {
		t.Errorf("the shell has what it must not: %s", body)
	}
	if !strings.Contains(body, "1.2.3 &lt;script&gt;") {
		t.Error("the version is not escaped, or not there")
	}
	if resp.Header.Get("Set-Cookie") != "" {
		t.Error("a cookie is set")
	}
}

// inline is what the policy would refuse, or what would go to somewhere else.
var inline = regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>[^<]|<style|\sstyle="|\son[a-z]+="|javascript:|(?:src|href)="(?:https?:)?//|@import|url\(`)

// dangerous are ways from a string to markup or code.
var dangerous = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\("style"|DOMParser|srcdoc|importScripts|localStorage|document\.cookie|https?://`)

func TestNoFileBreaksThePolicy(t *testing.T) {
	t.Parallel()
	r := room(t)
	if len(r.assets) < 12 {
		t.Fatalf("only %d files", len(r.assets))
	}
	if m := inline.FindString(string(r.shell.body)); m != "" {
		t.Errorf("the shell has %q", m)
	}
	for name, a := range r.assets {
		if a.kind == "" {
			t.Errorf("%s has no content type", name)
		}
		text := string(a.body)
		if strings.HasSuffix(name, ".css") {
			if m := inline.FindString(text); m != "" {
				t.Errorf("%s has %q", name, m)
			}
		}
		if strings.HasSuffix(name, ".js") {
			if m := dangerous.FindString(text); m != "" {
				t.Errorf("%s has %q", name, m)
			}
			if n := strings.Count(text, "\n"); n > 400 {
				t.Errorf("%s has %d lines", name, n)
			}
		}
		resp, body := ask(t, r, "/ui/"+name)
		if resp.StatusCode != http.StatusOK || body != text || resp.Header.Get("Content-Security-Policy") != policy || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("/ui/%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		if resp, _ = ask(t, r, "/ui/"+name, "If-None-Match", resp.Header.Get("ETag")); resp.StatusCode != http.StatusNotModified {
			t.Errorf("/ui/%s again: %d", name, resp.StatusCode)
		}
	}
}

// imports finds what a module loads.
var imports = regexp.MustCompile(`from "(\./[a-z]+\.js)"`)

func TestEveryModuleIsThereAndUsed(t *testing.T) {
	t.Parallel()
	r := room(t)
	used := map[string]bool{"app.js": true, "style.css": true, "icon.svg": true}
	for name, a := range r.assets {
		for _, m := range imports.FindAllStringSubmatch(string(a.body), -1) {
			file := strings.TrimPrefix(m[1], "./")
			if _, ok := r.assets[file]; !ok {
				t.Errorf("%s imports %s, which is not there", name, file)
			}
			used[file] = true
		}
	}
	for name := range r.assets {
		if !used[name] {
			t.Errorf("nothing uses %s", name)
		}
		if link := `<link rel="modulepreload" href="/ui/` + name + `">`; strings.HasSuffix(name, ".js") && name != "app.js" && !strings.Contains(string(r.shell.body), link) {
			t.Errorf("the shell does not ask for %s", name)
		}
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ui/nothing.js", "/ui/../ui.go", "/ui/static/app.js", "/ui/shell.html"} {
		if resp, _ := ask(t, room(t), path); resp.StatusCode != http.StatusNotFound || resp.Header.Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

var declared = regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)

// palettes reads the two themes; the dark one changes the light one.
func palettes(t *testing.T) map[string]map[string]string {
	t.Helper()
	css := string(room(t).assets["style.css"].body)
	light, rest, ok := strings.Cut(css, "@media (prefers-color-scheme: dark) {")
	if !ok {
		t.Fatal("there is no dark theme")
	}
	dark, _, _ := strings.Cut(rest, "}\n}")
	themes := map[string]map[string]string{"light": {}, "dark": {}}
	for _, m := range declared.FindAllStringSubmatch(light, -1) {
		themes["light"][m[1]], themes["dark"][m[1]] = m[2], m[2]
	}
	for _, m := range declared.FindAllStringSubmatch(dark, -1) {
		themes["dark"][m[1]] = m[2]
	}
	return themes
}

// WCAG 2.2 AA: 4.5 for text, 3 for what bounds a control.
func TestContrast(t *testing.T) {
	t.Parallel()
	text := [][2]string{{"ink", "bg"}, {"ink", "surface"}, {"ink", "sunken"}, {"ink", "ok-bg"}, {"ink", "accent-bg"}, {"muted", "bg"}, {"muted", "surface"}, {"muted", "sunken"}, {"muted", "accent-bg"},
		{"accent", "bg"}, {"accent", "surface"}, {"accent", "sunken"}, {"accent", "accent-bg"}, {"on-accent", "accent"}, {"on-bad", "bad"}, {"term-ink", "term-bg"}, {"term-bg", "term-ink"}}
	for _, look := range []string{"ok", "ask", "bad", "hold", "go", "calm"} {
		text = append(text, [2]string{look, look + "-bg"}, [2]string{look, "surface"}, [2]string{look, "accent-bg"}, [2]string{look, "sunken"})
	}
	edges := [][2]string{{"edge", "surface"}, {"edge", "bg"}, {"accent", "bg"}, {"accent", "surface"}, {"bad", "surface"}, {"ask", "bg"}}
	for theme, colours := range palettes(t) {
		check := func(pairs [][2]string, least float64) {
			for _, p := range pairs {
				a, b := colours[p[0]], colours[p[1]]
				if a == "" || b == "" {
					t.Fatalf("%s: --%s or --%s is not declared", theme, p[0], p[1])
				}
				if c := contrast(t, a, b); c < least {
					t.Errorf("%s: --%s %s on --%s %s has %.2f, less than %.1f", theme, p[0], a, p[1], b, c, least)
				}
			}
		}
		check(text, 4.5)
		check(edges, 3)
	}
}

func contrast(t *testing.T, a, b string) float64 {
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(t *testing.T, c string) float64 {
	t.Helper()
	var rgb [3]uint8
	if _, err := fmt.Sscanf(c, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v := float64(rgb[i]) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}
