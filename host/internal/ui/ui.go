// Package ui is the Control Room: one page for operators at / and its files
// under /ui/. It imports the standard library only; everything that it shows
// comes from the API, asked for by the page with the operator's token.
//
// The one idea: the shell is the same for everybody. It holds no data and no
// token, loads nothing from anywhere else, and the browser is told to let it
// make no markup of text (Trusted Types), so that what an agent writes can only
// ever be text.
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
)

//go:embed static shell.html
var files embed.FS

// kinds are the content types; the machine's own table is not asked.
var kinds = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// policy is the Content-Security-Policy of every answer: our own scripts, styles
// and images, requests to ourselves, nothing inline, no frame around it, and no
// way from a string to markup or script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// asset is one file as it is served.
type asset struct {
	body []byte
	kind string
	tag  string // ETag
}

// Room serves the Control Room.
type Room struct {
	shell  asset
	assets map[string]asset // by path below /ui/
}

// New reads the embedded files and makes the shell for a version.
func New(version string) (*Room, error) {
	r := &Room{assets: map[string]asset{}}
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		r.assets[strings.TrimPrefix(name, "static/")] = newAsset(body, kinds[path.Ext(name)])
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("control room: %w", err)
	}
	t, err := template.ParseFS(files, "shell.html")
	if err != nil {
		return nil, fmt.Errorf("control room: %w", err)
	}
	var page bytes.Buffer
	// Every module is named in the shell, so that the browser asks for all of them
	// at once and not level by level as it reads their imports.
	var modules []string
	for name := range r.assets {
		if path.Ext(name) == ".js" && name != "app.js" {
			modules = append(modules, name)
		}
	}
	slices.Sort(modules)
	if err := t.Execute(&page, struct {
		Version string
		Modules []string
	}{version, modules}); err != nil {
		return nil, fmt.Errorf("control room: %w", err)
	}
	r.shell = newAsset(page.Bytes(), "text/html; charset=utf-8")
	return r, nil
}

func newAsset(body []byte, kind string) asset {
	sum := sha256.Sum256(body)
	return asset{body, kind, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

// ServeHTTP answers GET / and GET /ui/….
func (r *Room) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	a, ok := r.shell, req.URL.Path == "/"
	if name, below := strings.CutPrefix(req.URL.Path, "/ui/"); below {
		if a, ok = r.assets[name]; name == "" {
			a, ok = r.shell, true
		}
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if !ok {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("the Control Room has no such file; it begins at /\n"))
		return
	}
	h.Set("Content-Type", a.kind)
	h.Set("ETag", a.tag)
	h.Set("Cache-Control", "no-cache") // asked for again, answered with 304
	if req.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if req.Method != http.MethodHead {
		_, _ = w.Write(a.body)
	}
}
