package messages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of an API. Zero values are the defaults.
type Options struct {
	// Check decides on a key, which is that of x-api-key or of a bearer token;
	// an error is answered with 401. nil: any key is good, but there must be one.
	Check func(key string) error
	// Seen is told of each request when it is answered, or when its stream
	// begins; it is called from many goroutines.
	Seen func(Request)
	// Bodies keeps the bodies in Request.Body.
	Bodies bool
}

// Request is one request to the API, as Requests and Options.Seen give it.
type Request struct {
	At      time.Time // when its head had come
	Method  string
	Path    string
	Header  http.Header // without keys and cookies
	Key     string      // SHA-256 of the key, in hex, see Digest; empty: there was none
	Session string      // X-Claude-Code-Session-Id
	Agent   string      // X-Claude-Code-Agent-Id, of a sub-agent
	Body    []byte      // with Options.Bodies

	Model     string
	MaxTokens int64
	Stream    bool
	Tools     []string // that the model may call
	Roles     []string // of the messages
	Results   string   // what the last tool calls gave back
	Step      int      // place in the script

	Status int
	Cut    string // "break" or "fail": how the stream was ended
	Stop   string // stop_reason
	Usage  Usage  // as it was stated, or would have been where the answer was cut
}

// Digest is how Request.Key shows a key.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

const (
	maxBody = 64 << 20 // bytes of a request
	maxLog  = 10_000   // requests that are kept
)

// API is the stand-in; it is an http.Handler. Make it with New.
type API struct {
	opts Options

	mu    sync.Mutex
	log   []Request
	given map[string]int // faults, by session and step
}

// New makes an API.
func New(opts Options) *API { return &API{opts: opts, given: map[string]int{}} }

// Requests are the requests so far, in the order in which they were answered.
func (a *API) Requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

// ServeHTTP is http.Handler's.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &Request{At: time.Now(), Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(),
		Session: r.Header.Get("X-Claude-Code-Session-Id"), Agent: r.Header.Get("X-Claude-Code-Agent-Id")}
	for _, secret := range []string{"X-Api-Key", "Authorization", "Cookie", "Proxy-Authorization"} {
		q.Header.Del(secret)
	}
	w.Header().Set("Request-Id", newID("req"))
	key := r.Header.Get("X-Api-Key")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); key == "" && ok {
		key = bearer
	}
	if key != "" {
		q.Key = Digest(key)
	}
	counting := r.URL.Path == "/v1/messages/count_tokens"
	switch {
	case r.URL.Path == "/api/hello" || r.URL.Path == "/":
		a.note(q, http.StatusOK)
	case r.URL.Path != "/v1/messages" && !counting:
		a.refuse(w, q, http.StatusNotFound, "Not found")
	case r.Method != http.MethodPost:
		a.refuse(w, q, http.StatusMethodNotAllowed, "Method Not Allowed")
	case key == "":
		a.refuse(w, q, http.StatusUnauthorized, "x-api-key header is required")
	case a.opts.Check != nil && a.opts.Check(key) != nil:
		a.refuse(w, q, http.StatusUnauthorized, "invalid x-api-key")
	default:
		a.serve(w, r, q, counting)
	}
}

// serve answers a request whose key is good.
func (a *API) serve(w http.ResponseWriter, r *http.Request, q *Request, counting bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		a.refuse(w, q, http.StatusRequestEntityTooLarge, "Request exceeds the maximum size")
		return
	}
	if a.opts.Bodies {
		q.Body = body
	}
	var c conversation
	if err := json.Unmarshal(body, &c); err != nil {
		a.refuse(w, q, http.StatusBadRequest, "the body is no request: "+err.Error())
		return
	}
	if err := c.check(counting); err != nil {
		a.refuse(w, q, http.StatusBadRequest, err.Error())
		return
	}
	if counting {
		a.note(q, http.StatusOK)
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": len(body)/4 + 1})
		return
	}
	steps, at := c.place()
	q.take(&c, at)
	p := planFrom(steps, at, q.Results)
	for i := range p.parts {
		p.parts[i].input = c.recall(p.parts[i].input)
	}
	p.fit(c.MaxTokens)
	ans := newAnswer(p, c.Model, len(body))
	if !pauseFor(r, p.wait) {
		panic(http.ErrAbortHandler) // the client is gone
	}
	cut := ""
	if f, ok := a.fault(q, &p); ok {
		switch f.verb {
		case "break", "fail":
			cut = f.verb
		case "overload":
			a.refuse(w, q, statusOverloaded, "Overloaded")
			return
		case "error":
			a.refuse(w, q, f.code, fmt.Sprintf("the script answers %d here", f.code))
			return
		}
	}
	q.Usage, q.Stop, q.Cut = ans.used, ans.stop, cut
	a.note(q, http.StatusOK)
	if c.Stream {
		ans.stream(w, r, cut)
		return
	}
	writeJSON(w, http.StatusOK, ans.message())
}

// take notes what a test may want to see of a conversation.
func (q *Request) take(c *conversation, at int) {
	q.Model, q.MaxTokens, q.Stream, q.Step = c.Model, c.MaxTokens, c.Stream, at
	q.Results = c.lastResults()
	for _, t := range c.Tools {
		q.Tools = append(q.Tools, t.Name)
	}
	for _, m := range c.Messages {
		q.Roles = append(q.Roles, m.Role)
	}
}

// fault is the first fault of a plan that is still to be given.
func (a *API) fault(q *Request, p *plan) (faultAt, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range p.faults {
		if (f.verb == "break" || f.verb == "fail") && !q.Stream {
			continue
		}
		key := fmt.Sprintf("%s %s %d", q.Session, q.Agent, f.at)
		if f.times > 0 && a.given[key] >= f.times {
			continue
		}
		a.given[key]++
		return f, true
	}
	return faultAt{}, false
}

func (a *API) refuse(w http.ResponseWriter, q *Request, status int, text string) {
	a.note(q, status)
	writeJSON(w, status, errorBody(status, text))
}

// note writes a request into the log.
func (a *API) note(q *Request, status int) {
	q.Status = status
	a.mu.Lock()
	a.log = append(a.log, *q)
	if len(a.log) > maxLog {
		a.log = slices.Clone(a.log[maxLog/10:])
	}
	a.mu.Unlock()
	if a.opts.Seen != nil {
		a.opts.Seen(*q)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
