package driver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// registry serves one image over the registry's HTTP API, and counts how often
// its manifest was asked for.
type registry struct {
	server *httptest.Server
	asked  atomic.Int64
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	layer, err := dockertest.ShellTar()
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Appendf(nil, `{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[%q]}}`, digest(layer))
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "size": len(config), "digest": digest(config)},
		"layers": []map[string]any{{"mediaType": "application/vnd.oci.image.layer.v1.tar", "size": len(layer), "digest": digest(layer)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, last, _ := strings.Cut(req.URL.Path, "/v2/team/cell/")
		send := func(kind string, b []byte) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Docker-Content-Digest", digest(b))
			http.ServeContent(w, req, "", have.began, bytes.NewReader(b))
		}
		switch last {
		case "": // is it a registry?
			w.WriteHeader(http.StatusOK)
		case "manifests/1", "manifests/" + digest(manifest):
			r.asked.Add(1)
			send("application/vnd.oci.image.manifest.v1+json", manifest)
		case "blobs/" + digest(config):
			send("application/octet-stream", config)
		case "blobs/" + digest(layer):
			send("application/octet-stream", layer)
		default:
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(r.server.Close)
	return r
}

func (r *registry) image() string {
	return strings.TrimPrefix(r.server.URL, "http://") + "/team/cell:1"
}

func TestAnImageIsFetchedAsTheConfigurationSays(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)

	never := newRig(t, nil, map[string]any{"image": reg.image()})
	m := never.awaitHealth(func(m *pluginv1.HealthResponse) bool {
		return unavailable(m) && strings.Contains(m.GetReason(), "image")
	})
	_, err := never.client.Create(never.ctx(), &pluginv1.CreateRequest{Spec: never.spec("never")})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("create without the image: %v", err)
	}
	for _, text := range []string{m.GetReason(), fmt.Sprint(err)} {
		for _, word := range []string{reg.image(), "docker pull", `pull = "missing"`} {
			if !strings.Contains(text, word) {
				t.Errorf("%q does not say %s", text, word)
			}
		}
	}
	if reg.asked.Load() != 0 {
		t.Error("the registry was asked, with pull = never")
	}

	// Fetched before a cell needs it; then both instances have it.
	missing := newRig(t, nil, map[string]any{"image": reg.image(), "pull": pullMissing})
	got := missing.awaitHealth(healthy).GetAttributes()
	if !strings.Contains(got["image.digest"], "@sha256:") || !strings.HasPrefix(got["image.id"], "sha256:") {
		t.Errorf("health shows %v", got)
	}
	never.awaitHealth(healthy)
	c := missing.create(missing.spec("m"))
	if !strings.Contains(c.GetFacts().GetRoot(), got["image.id"]) {
		t.Errorf("the facts say %q, the image is %s", c.GetFacts().GetRoot(), got["image.id"])
	}
	missing.destroy("m")
	before := reg.asked.Load()

	always := newRig(t, nil, map[string]any{"image": reg.image(), "pull": pullAlways})
	for _, id := range []string{"a", "b"} {
		always.create(always.spec(id))
		always.destroy(id)
	}
	if n := reg.asked.Load(); n < before+2 {
		t.Errorf("the registry was asked %d times for two cells, with pull = always", n-before)
	}
}

func TestAnImageThatCannotBeFetched(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	image := strings.Replace(reg.image(), "cell:1", "other:1", 1)
	r := newRig(t, nil, map[string]any{"image": image, "pull": pullMissing})
	_, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: r.spec("x")})
	if code := status.Code(err); code != codes.FailedPrecondition && code != codes.Unavailable || !strings.Contains(err.Error(), image) {
		t.Errorf("create says %v", err)
	}
	m := r.awaitHealth(func(m *pluginv1.HealthResponse) bool {
		return unavailable(m) && strings.Contains(m.GetReason(), "cannot be pulled")
	})
	if !strings.Contains(m.GetReason(), image) {
		t.Errorf("health says %q", m.GetReason())
	}
}
