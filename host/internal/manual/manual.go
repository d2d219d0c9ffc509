// Package manual serves the documentation at /docs, from the program itself. It
// imports the pages and a Markdown renderer; nothing else of Airlock.
//
// The one idea: pages are rendered once, at the start, and are the same for
// everybody. They load nothing from anywhere else and run no script.
package manual

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"sort"
	"strings"

	"github.com/russross/blackfriday/v2"
)

// policy lets a page have the Control Room's style sheet and nothing else.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var shell = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}} – Airlock</title>
<link rel="icon" href="/ui/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/ui/style.css">
</head>
<body>
<main class="manual">
<p class="back"><a href="/docs/">← All pages</a> · <a href="/">Control Room</a></p>
{{.Body}}
</main>
<footer class="foot muted">Airlock {{.Version}}</footer>
</body>
</html>
`))

// Manual serves the pages below /docs.
type Manual struct {
	pages map[string]page // by path without .md; "" is the list
}

type page struct {
	body []byte
	tag  string
}

// New renders the pages of a file system for a version.
func New(pages fs.FS, version string) (*Manual, error) {
	m := &Manual{pages: map[string]page{}}
	titles := map[string]string{}
	err := fs.WalkDir(pages, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		text, err := fs.ReadFile(pages, name)
		if err != nil {
			return err
		}
		key := strings.TrimSuffix(name, ".md")
		titles[key] = title(text, key)
		return m.add(key, titles[key], version, render(text))
	})
	if err != nil {
		return nil, fmt.Errorf("documentation: %w", err)
	}
	return m, m.add("", "Documentation", version, list(titles))
}

func (m *Manual) add(key, title, version string, body template.HTML) error {
	var out bytes.Buffer
	err := shell.Execute(&out, struct {
		Title, Version string
		Body           template.HTML
	}{title, version, body})
	if err != nil {
		return fmt.Errorf("documentation: %s: %w", key, err)
	}
	sum := sha256.Sum256(out.Bytes())
	m.pages[key] = page{out.Bytes(), `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	return nil
}

// title is a page's first heading.
func title(text []byte, otherwise string) string {
	first, _, _ := strings.Cut(string(text), "\n")
	if t, ok := strings.CutPrefix(first, "# "); ok {
		return strings.ReplaceAll(t, "`", "")
	}
	return otherwise
}

// toPage are links from page to page; in the files they end in .md.
var toPage = regexp.MustCompile(`href="((?:[A-Za-z0-9_-]+/|\.\./)*[A-Za-z0-9_-]+)\.md(#[^"]*)?"`)

// render makes a page's HTML. Markup in a page's text is shown, not used.
func render(text []byte) template.HTML {
	r := blackfriday.NewHTMLRenderer(blackfriday.HTMLRendererParameters{Flags: blackfriday.SkipHTML | blackfriday.Safelink | blackfriday.NoreferrerLinks})
	body := blackfriday.Run(text, blackfriday.WithRenderer(r),
		blackfriday.WithExtensions(blackfriday.Tables|blackfriday.FencedCode|blackfriday.Autolink|blackfriday.NoIntraEmphasis|blackfriday.AutoHeadingIDs|blackfriday.SpaceHeadings|blackfriday.BackslashLineBreak))
	return template.HTML(toPage.ReplaceAll(body, []byte(`href="$1$2"`))) //nolint:gosec // of our own pages, with their markup taken out
}

func list(titles map[string]string) template.HTML {
	keys := make([]string, 0, len(titles))
	for key := range titles {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(a, b int) bool { return titles[keys[a]] < titles[keys[b]] })
	var out strings.Builder
	out.WriteString("<h1>Documentation</h1>\n<ul>\n")
	for _, key := range keys {
		fmt.Fprintf(&out, "<li><a href=\"/docs/%s\">%s</a></li>\n", template.HTMLEscapeString(key), template.HTMLEscapeString(titles[key]))
	}
	out.WriteString("</ul>\n")
	return template.HTML(out.String()) //nolint:gosec // every part of it was escaped
}

// ServeHTTP answers GET /docs, /docs/ and /docs/PAGE.
func (m *Manual) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	key := strings.Trim(strings.TrimPrefix(req.URL.Path, "/docs"), "/")
	p, ok := m.pages[strings.TrimSuffix(key, ".md")]
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	switch {
	case !ok:
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("the documentation has no such page; /docs/ lists all\n"))
		return
	case req.URL.Path == "/docs": // links count from /docs/
		http.Redirect(w, req, "/docs/", http.StatusPermanentRedirect)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("ETag", p.tag)
	h.Set("Cache-Control", "no-cache")
	if req.Header.Get("If-None-Match") == p.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if req.Method != http.MethodHead {
		_, _ = w.Write(p.body)
	}
}
