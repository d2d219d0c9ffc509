package api_test

import (
	"archive/tar"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/result"
)

func TestTheFilesOfAMission(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	const path = "/api/v1/missions/m1/files"
	call(t, h, apitest.VicToken, "GET", path, "").want(t, http.StatusConflict)
	call(t, h, apitest.VicToken, "GET", "/api/v1/missions/other/files", "").want(t, http.StatusNotFound)
	if err := h.Engine.Abort(t.Context(), "m1", "alice", "operator", "enough"); err != nil {
		t.Fatal(err)
	}
	if got := call(t, h, apitest.VicToken, "GET", path, "").want(t, http.StatusNotFound).object(t)["code"]; got != "no_files" {
		t.Errorf("code %v", got)
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Engine.Results().Collect(t.Context(), result.Job{MissionID: "m1", CellID: "c1", Root: root}); err != nil {
		t.Fatal(err)
	}
	got := call(t, h, apitest.VicToken, "GET", path, "").want(t, http.StatusOK)
	if got.header.Get("Content-Type") != "application/x-tar" || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header %v", got.header)
	}
	r := tar.NewReader(strings.NewReader(got.body))
	e, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || e.Name != "a" || string(text) != "text" {
		t.Errorf("%s: %q, %v", e.Name, text, err)
	}
	list := call(t, h, apitest.VicToken, "GET", path, "", "Accept: application/json").want(t, http.StatusOK)
	var m result.Manifest
	if err := json.Unmarshal([]byte(list.body), &m); err != nil || len(m.Files) != 1 || m.Files[0].Path != "a" {
		t.Errorf("manifest %s, %v", list.body, err)
	}
}
