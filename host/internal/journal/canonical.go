package journal

import (
	"bytes"
	"encoding/hex"
	"time"
	"unicode/utf8"
)

// canonical reads a line exactly as AppendExport writes it, several times
// faster than encoding/json. False means only that the line is written in
// another way, or bad: decodeAny decides.
func (r *Reader) canonical(text []byte, ev *Event) bool {
	p := scanner{rest: text, plain: &r.plain}
	p.literal(`{"sequence":`)
	ev.Sequence = p.number()
	p.literal(`,"event_id":`)
	ev.EventID = string(p.text())
	p.literal(`,"task_id":`)
	ev.TaskID = r.taskID(p.text())
	p.literal(`,"timestamp":`)
	at, ok := parseTime(p.text())
	ev.Timestamp = at
	p.literal(`,"kind":`)
	ev.Kind = r.kind(p.text())
	p.literal(`,"payload":`)
	ev.Payload = string(p.text())
	p.literal(`,"previous_hash":"`)
	p.digest(&ev.PreviousHash)
	p.literal(`","digest":"`)
	p.digest(&ev.Digest)
	p.literal(`"}`)
	return ok && !p.bad && len(p.rest) == 0
}

// taskID gives one string for all the events of a task.
func (r *Reader) taskID(b []byte) string {
	if r.task != string(b) {
		r.task = string(b)
	}
	return r.task
}

// kind gives one string for all the events of a kind.
func (r *Reader) kind(b []byte) Kind {
	k, ok := r.kinds[string(b)]
	if !ok {
		k = Kind(b)
		if len(r.kinds) < 256 {
			r.kinds[string(b)] = k
		}
	}
	return k
}

// parseTime reads TimeLayout.
func parseTime(b []byte) (time.Time, bool) {
	if len(b) != len(TimeLayout) || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[23] != 'Z' {
		return time.Time{}, false
	}
	num := func(from, to int) int {
		n := 0
		for _, c := range b[from:to] {
			if c < '0' || c > '9' {
				return -1 << 30
			}
			n = n*10 + int(c-'0')
		}
		return n
	}
	year, month, day := num(0, 4), num(5, 7), num(8, 10)
	hour, minute, sec, ms := num(11, 13), num(14, 16), num(17, 19), num(20, 23)
	if year < 1 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || sec < 0 || sec > 59 || ms < 0 {
		return time.Time{}, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, sec, ms*int(time.Millisecond), time.UTC)
	return t, t.Day() == day // 31 February would roll over
}

// scanner takes a line apart. After the first mismatch it is bad and gives
// zero values.
type scanner struct {
	rest  []byte
	plain *[]byte // scratch of text
	bad   bool
}

func (s *scanner) literal(want string) {
	if s.bad || len(s.rest) < len(want) || string(s.rest[:len(want)]) != want {
		s.bad = true
		return
	}
	s.rest = s.rest[len(want):]
}

func (s *scanner) number() uint64 {
	var n uint64
	i := 0
	for ; i < len(s.rest) && s.rest[i] >= '0' && s.rest[i] <= '9'; i++ {
		n = n*10 + uint64(s.rest[i]-'0')
	}
	if i == 0 || i > 18 || (i > 1 && s.rest[0] == '0') {
		s.bad = true
		return 0
	}
	s.rest = s.rest[i:]
	return n
}

// text reads a JSON string. It is valid until the next call.
func (s *scanner) text() []byte {
	if s.bad || len(s.rest) == 0 || s.rest[0] != '"' {
		s.bad = true
		return nil
	}
	body := s.rest[1:]
	end := bytes.IndexByte(body, '"')
	if end < 0 {
		s.bad = true
		return nil
	}
	if bytes.IndexByte(body[:end], '\\') >= 0 {
		body, end = s.unescape(body)
		s.rest = s.rest[1+end+1:]
		return s.checked(body)
	}
	s.rest = body[end+1:]
	return s.checked(body[:end])
}

// unescape reads a string with escapes and says where it ended. It works on a
// copy: decodeAny must see the line as it was.
func (s *scanner) unescape(body []byte) (out []byte, end int) {
	out = (*s.plain)[:0]
	start := 0
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c == '"' {
			out = append(out, body[start:i]...)
			*s.plain = out
			return out, i
		}
		if c != '\\' {
			continue
		}
		out = append(out, body[start:i]...)
		i++
		if i == len(body) {
			break
		}
		switch c := body[i]; c {
		case '"', '\\':
			out = append(out, c)
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		default: // \u00xx, and what Writer does not write
			s.bad = true
			return nil, 0
		}
		start = i + 1
	}
	s.bad = true
	return nil, 0
}

// checked refuses what is not UTF-8: such a line was not written by Writer.
func (s *scanner) checked(b []byte) []byte {
	if !utf8.Valid(b) {
		s.bad = true
	}
	return b
}

func (s *scanner) digest(d *Digest) {
	const n = 2 * len(d)
	if s.bad || len(s.rest) < n {
		s.bad = true
		return
	}
	for _, c := range s.rest[:n] {
		if 'A' <= c && c <= 'F' { // one digest has one text
			s.bad = true
		}
	}
	if _, err := hex.Decode(d[:], s.rest[:n]); err != nil {
		s.bad = true
	}
	s.rest = s.rest[n:]
}
