package manual

import (
	"io/fs"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/docs"
)

func get(t *testing.T, m *Manual, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// Every page is there, and every link in it that stays here leads to a page and,
// where it names one, to a heading of it.
func TestEveryPageAndEveryLink(t *testing.T) {
	t.Parallel()
	m, err := New(docs.Pages, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	seen, links := 0, 0
	link := regexp.MustCompile(`href="([^"]+)"`)
	err = fs.WalkDir(docs.Pages, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		seen++
		at := "/docs/" + strings.TrimSuffix(name, ".md")
		body := get(t, m, at).Body.String()
		if !strings.Contains(body, "<h1") || !strings.Contains(body, "Airlock 1.2.3") {
			t.Errorf("%s is no page", at)
		}
		if !strings.Contains(get(t, m, "/docs/").Body.String(), `"`+at+`"`) {
			t.Errorf("the list lacks %s", at)
		}
		for _, l := range link.FindAllStringSubmatch(body, -1) {
			to, heading, _ := strings.Cut(l[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "/ui/") || to == "/" || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := at
			if to != "" && !strings.HasPrefix(to, "/") {
				target = path.Join(path.Dir(at), to)
			} else if to != "" {
				target = to
			}
			if !strings.HasPrefix(target, "/docs") { // a file of the repository
				continue
			}
			links++
			w := get(t, m, target)
			if w.Code != 200 && target != "/docs" {
				t.Errorf("%s: a link to %s, where nothing is", at, l[1])
			} else if heading != "" && !strings.Contains(w.Body.String(), `id="`+heading+`"`) {
				t.Errorf("%s: a link to %s, and the page has no such heading", at, l[1])
			}
		}
		return nil
	})
	if err != nil || seen < 15 || links < 20 {
		t.Errorf("%d pages, %d links, %v", seen, links, err)
	}
}

func TestWhatAPageMayNot(t *testing.T) {
	t.Parallel()
	m, err := New(docs.Pages, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	w := get(t, m, "/docs/runbook")
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "script") {
		t.Errorf("policy: %s", csp)
	}
	if strings.Contains(w.Body.String(), "<script") {
		t.Error("a page has a script")
	}
	again := httptest.NewRequest("GET", "/docs/runbook", nil)
	again.Header.Set("If-None-Match", w.Header().Get("ETag"))
	r := httptest.NewRecorder()
	m.ServeHTTP(r, again)
	if r.Code != 304 || r.Body.Len() != 0 {
		t.Errorf("the same page again: %d", r.Code)
	}
	for path, want := range map[string]int{"/docs": 308, "/docs/": 200, "/docs/runbook.md": 200, "/docs/drivers/docker": 200, "/docs/nothing": 404, "/docs/../etc/passwd": 404} {
		if got := get(t, m, path).Code; got != want {
			t.Errorf("%s: %d, not %d", path, got, want)
		}
	}
	if got := string(render([]byte("a <script>x</script> [b](javascript:x) `<i>`"))); strings.Contains(got, "<script") || strings.Contains(got, "javascript:") || strings.Contains(got, "<i>") {
		t.Errorf("markup of a page: %s", got)
	}
}
