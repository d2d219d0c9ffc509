package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const issuerSecret = "0123456789abcdef0123456789abcdef"

// issuer gives access to sessions and delegations, and takes it back over the
// webhook revoker; how it answers can be changed.
type issuer struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	answer string          // "" = revoke and say so; else this body, and nothing is revoked
	denied map[string]bool // by access ref
	stops  []string
	block  chan struct{} // not nil: answers wait until it is closed
}

type revocation struct {
	TaskID      string   `json:"task_id"`
	StopID      string   `json:"stop_id"`
	Grants      []string `json:"grants"`
	Sessions    []string `json:"sessions"`
	Delegations []string `json:"delegations"`
	Reason      string   `json:"reason"`
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, denied: map[string]bool{}}
	i.Server = httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var stamp string
	for _, part := range strings.Split(r.Header.Get("Airlock-Signature"), ",") {
		if v, ok := strings.CutPrefix(part, "t="); ok {
			stamp = v
		}
	}
	mac := hmac.New(sha256.New, []byte(issuerSecret))
	fmt.Fprintf(mac, "%s.%s", stamp, body)
	if !strings.Contains(r.Header.Get("Airlock-Signature"), "v1="+hex.EncodeToString(mac.Sum(nil))) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var rev revocation
	if json.Unmarshal(body, &rev) != nil || rev.StopID != r.Header.Get("Idempotency-Key") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	i.mu.Lock()
	block, answer := i.block, i.answer
	i.mu.Unlock()
	if block != nil {
		<-block
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stops = append(i.stops, rev.StopID)
	w.Header().Set("Content-Type", "application/json")
	if answer != "" {
		fmt.Fprint(w, answer)
		return
	}
	for _, ref := range slices.Concat(rev.Sessions, rev.Delegations, []string{rev.TaskID}) {
		i.denied[ref] = true
	}
	fmt.Fprint(w, `{"revoked": true}`)
}

func (i *issuer) set(answer string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

// asked counts the requests that were answered.
func (i *issuer) asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.stops)
}

// denies says whether the issuer refuses an access.
func (i *issuer) denies(ref string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.denied[ref]
}

// revokers are the blocks of webhook revokers by name.
func revokers(dir string, list map[string]*issuer) string {
	var b strings.Builder
	for name, i := range list {
		fmt.Fprintf(&b, `
revoker "webhook" %q {
  config {
    url    = "%s/revoke"
    secret = secret("file:%s")
  }
}
`, name, i.URL, filepath.Join(dir, "issuer.key"))
	}
	return b.String()
}

// harness is an agent outside of any cell.
type harness struct {
	r           *rig
	task, token string
}

// openTask opens a task for a harness.
func (r *rig) openTask(id string, more map[string]any) *harness {
	r.t.Helper()
	body := map[string]any{"task_id": id, "objective": "refund the customer"}
	for k, v := range more {
		body[k] = v
	}
	code, a := r.send("/tasks", body)
	if code != http.StatusCreated {
		r.t.Fatalf("open task: %d %v", code, a)
	}
	token, _ := a["token"].(string)
	return &harness{r: r, task: id, token: token}
}

func (h *harness) call(method, path string, body any) (int, map[string]any) {
	h.r.t.Helper()
	var rd io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			h.r.t.Fatal(err)
		}
		rd = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, "http://localhost/tasks/"+h.task+path, rd)
	if err != nil {
		h.r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.r.api.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	a := map[string]any{}
	_ = json.NewDecoder(resp.Body).Decode(&a)
	return resp.StatusCode, a
}

// propose gives the decision's id and status.
func (h *harness) propose(proposal, tool string, args any, waitS int) (id, status string) {
	h.r.t.Helper()
	code, a := h.call("POST", "/proposals", map[string]any{"proposal_id": proposal, "tool_name": tool, "tool_args": args, "wait_s": waitS})
	if code != http.StatusOK {
		h.r.t.Fatalf("propose: %d %v", code, a)
	}
	d, _ := a["decision"].(map[string]any)
	id, _ = a["decision_id"].(string)
	status, _ = d["status"].(string)
	return id, status
}

// dispatch gives the invocation's id, or the code of the refusal.
func (h *harness) dispatch(decision, tool string, args any) (id, refused string) {
	h.r.t.Helper()
	code, a := h.call("POST", "/dispatches", map[string]any{"decision_id": decision, "tool_name": tool, "tool_args": args})
	if code == http.StatusCreated {
		id, _ = a["invocation_id"].(string)
		return id, ""
	}
	refused, _ = a["code"].(string)
	return "", refused
}

func (h *harness) complete(invocation, outcome string) int {
	h.r.t.Helper()
	code, _ := h.call("POST", "/dispatches/"+invocation+"/completion", map[string]any{"outcome": outcome})
	return code
}

// stop stops the task and gives the final receipt.
func (h *harness) stop(wait string) map[string]any {
	h.r.t.Helper()
	code, a := h.r.send("/tasks/"+h.task+"/control?wait="+wait, map[string]any{"action": "stop", "reason": "enough"})
	if code != http.StatusOK {
		h.r.t.Fatalf("stop: %d %v", code, a)
	}
	return a
}
