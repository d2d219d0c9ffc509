package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"unicode/utf8"
)

const (
	maxLine = 1 << 20  // bytes of an event that is looked at
	maxJSON = 16 << 20 // bytes of a plain answer that is looked at
	// charsPerToken is how many characters a token has at most, on average: an
	// upstream that sends more than a call's tokens can be is cut.
	charsPerToken = 6
)

var errOverBudget = errors.New("the answer is longer than the budget allows")

// meter reads an answer on its way to the cell: what it has used, from the
// usage that it states. It never changes the answer, it only ends one that goes
// over its limit.
type meter struct {
	body   io.ReadCloser
	events bool  // a stream of events, else one JSON document
	length int64 // of the body; -1: not known
	limit  int64 // of output tokens; 0: none
	done   func()

	read      int64
	buf       []byte // the unfinished line, or the document
	overlong  bool   // buf does not hold everything
	use       usage
	stated    bool // a usage was seen
	complete  bool // the answer is there whole
	model     string
	chars     int64 // of text that was streamed
	metered   bool  // it could be looked at
	errStatus bool
}

// newMeter puts a meter into a response. done is called once, as soon as the
// answer is there whole and before its last bytes are passed on.
func newMeter(resp *http.Response, limit int64, done func()) *meter {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	m := &meter{body: resp.Body, length: resp.ContentLength, limit: limit, done: done, errStatus: resp.StatusCode >= 400}
	enc := resp.Header.Get("Content-Encoding")
	m.metered = (enc == "" || enc == "identity") && (kind == "text/event-stream" || kind == "application/json")
	m.events = kind == "text/event-stream"
	resp.Body = m
	return m
}

// Read is io.Reader's.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.body.Read(p)
	m.read += int64(n)
	if m.metered && n > 0 {
		if m.events {
			m.lines(p[:n])
		} else {
			m.collect(p[:n])
		}
		if m.limit > 0 && (m.use.output > m.limit || m.chars > charsPerToken*m.limit) {
			return n, errOverBudget // these bytes are paid for
		}
	}
	if errors.Is(err, io.EOF) || m.length >= 0 && m.read == m.length {
		m.whole()
	}
	return n, err
}

// Close is io.Closer's.
func (m *meter) Close() error { return m.body.Close() }

// whole says that the answer is there.
func (m *meter) whole() {
	if m.complete {
		return
	}
	m.complete = true
	if m.metered && !m.events && !m.overlong {
		m.document(m.buf)
	}
	m.done()
}

func (m *meter) collect(p []byte) {
	if len(m.buf)+len(p) > maxJSON {
		m.overlong, m.buf = true, nil
	}
	if !m.overlong {
		m.buf = append(m.buf, p...)
	}
}

// lines takes the stream apart into its lines.
func (m *meter) lines(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			if len(m.buf)+len(p) > maxLine {
				m.buf, m.overlong = m.buf[:0], true
				m.chars += int64(len(p))
			} else if !m.overlong {
				m.buf = append(m.buf, p...)
			}
			return
		}
		line := p[:i]
		if len(m.buf) > 0 {
			m.buf = append(m.buf, line...)
			line = m.buf
		}
		if !m.overlong {
			m.line(line)
		}
		m.buf, m.overlong = m.buf[:0], false
		p = p[i+1:]
	}
}

type statedUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	Creation   struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
}

func (m *meter) line(line []byte) {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return
	}
	var e struct {
		Type    string `json:"type"`
		Message struct {
			Model string       `json:"model"`
			Usage *statedUsage `json:"usage"`
		} `json:"message"`
		Usage *statedUsage `json:"usage"`
		Delta struct {
			Text     string `json:"text"`
			JSON     string `json:"partial_json"`
			Thinking string `json:"thinking"`
		} `json:"delta"`
	}
	if json.Unmarshal(data, &e) != nil {
		m.chars += int64(len(data)) // whatever it is, it comes out of the budget
		return
	}
	m.chars += int64(utf8.RuneCountInString(e.Delta.Text) + utf8.RuneCountInString(e.Delta.JSON) + utf8.RuneCountInString(e.Delta.Thinking))
	if e.Message.Model != "" {
		m.model = e.Message.Model
	}
	m.state(e.Message.Usage)
	m.state(e.Usage)
	if e.Type == "message_stop" {
		m.whole()
	}
}

func (m *meter) document(b []byte) {
	var d struct {
		Model string       `json:"model"`
		Usage *statedUsage `json:"usage"`
	}
	if json.Unmarshal(b, &d) != nil {
		return
	}
	m.model = d.Model
	m.state(d.Usage)
}

// state takes a usage in. They are cumulative, and not every one has every
// field.
func (m *meter) state(u *statedUsage) {
	if u == nil {
		return
	}
	m.stated = true
	for _, f := range []struct {
		to   *int64
		said int64
	}{{&m.use.input, u.Input}, {&m.use.output, u.Output}, {&m.use.cacheRead, u.CacheRead}, {&m.use.cacheWrite, u.CacheWrite}, {&m.use.cacheWriteHour, u.Creation.Hour}} {
		*f.to = max(*f.to, min(f.said, maxAmount/16))
	}
}

// used is what the answer has used; ok = it is known. Of an answer that was
// broken off only the beginning was paid attention to: what came counts, at
// four characters a token.
func (m *meter) used() (u usage, ok bool) {
	u = m.use
	switch {
	case m.complete && m.metered && !m.overlong, m.errStatus && !m.stated:
		return u, true
	case m.stated:
		u.output = max(u.output, m.chars/4)
		return u, true
	default:
		return u, false
	}
}
