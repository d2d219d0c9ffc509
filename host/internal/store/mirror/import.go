package mirror

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Imported is what an older sandbox left.
type Imported struct {
	// InstanceID is its identity; empty if there is none or it is no UUID.
	InstanceID string
	// Missions in flight, by their creation. Those that are over are left out.
	Missions []Record
	// Notes say what was left out and why.
	Notes []string
}

// FileError is a file that cannot be imported. It is left as it is.
type FileError struct {
	Path         string
	Line, Column int // from 1, in bytes
	Err          error
}

// Error implements error.
func (e *FileError) Error() string {
	return fmt.Sprintf("%s line %d, column %d: %v; nothing was imported and the file is left as it is", e.Path, e.Line, e.Column, e.Err)
}

// Unwrap gives the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Import reads identity and missions.json of an older sandbox. Files that are
// not there are no error; one that cannot be read stops the import with a
// *FileError (rulings 9). Nothing is written. That it is done only once is the
// caller's to remember.
func Import(dir string) (Imported, error) {
	var out Imported
	text, err := os.ReadFile(filepath.Join(dir, "identity"))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return Imported{}, fmt.Errorf("import identity: %w", err)
	default:
		id := strings.TrimSpace(string(text))
		if parsed, err := uuid.Parse(id); err == nil && len(id) == len(parsed.String()) {
			out.InstanceID = parsed.String()
		} else {
			out.Notes = append(out.Notes, "the identity is not a UUID and was not taken over")
		}
	}
	path := filepath.Join(dir, FileName)
	text, err = os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return Imported{}, fmt.Errorf("import missions: %w", err)
	}
	records, err := parse(text)
	if err != nil {
		var at *placed
		if errors.As(err, &at) {
			line, column := place(text, at.offset)
			return Imported{}, &FileError{Path: path, Line: line, Column: column, Err: at.err}
		}
		return Imported{}, &FileError{Path: path, Line: 1, Column: 1, Err: err}
	}
	for _, r := range records {
		if !InFlight(r.State) {
			out.Notes = append(out.Notes, fmt.Sprintf("mission %q is %s and was left out", r.MissionID, r.State))
			continue
		}
		out.Missions = append(out.Missions, r)
	}
	sort.SliceStable(out.Missions, func(i, j int) bool { return out.Missions[i].CreatedAt.Before(out.Missions[j].CreatedAt) })
	return out, nil
}

// placed is an error with the offset of the byte where it shows.
type placed struct {
	offset int64
	err    error
}

func (p *placed) Error() string { return p.err.Error() }

// place turns an offset into line and column.
func place(text []byte, offset int64) (line, column int) {
	before := text[:min(max(offset, 0), int64(len(text)))]
	line = bytes.Count(before, []byte("\n")) + 1
	return line, len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
}

// parse reads the object of missions, in the file's order.
func parse(text []byte) ([]Record, error) {
	if i := firstBadUTF8(text); i >= 0 {
		return nil, &placed{int64(i), errors.New("the file is not UTF-8")}
	}
	// Form first: only here are the offsets of encoding/json those of the file.
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, locate(nil, text, err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	fail := func(err error) ([]Record, error) { return nil, locate(dec, text, err) }
	if t, err := dec.Token(); err != nil {
		return fail(err)
	} else if t != json.Delim('{') {
		return fail(errors.New("the file is not a JSON object of missions"))
	}
	var out []Record
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return fail(err)
		}
		id, _ := t.(string)
		if id == "" || seen[id] {
			return fail(fmt.Errorf("the mission id %q is empty or there twice", id))
		}
		seen[id] = true
		start := dec.InputOffset()
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return fail(err)
		}
		r, err := parseRecord(id, raw)
		if err != nil {
			var at *placed
			if errors.As(err, &at) {
				// The value's text follows the colon and blanks.
				return nil, &placed{start + int64(bytes.Index(text[start:], raw)) + at.offset, at.err}
			}
			return fail(err)
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRecord(id string, raw json.RawMessage) (Record, error) {
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return Record{}, locate(nil, raw, err)
	}
	switch {
	case raw[0] != '{':
		return Record{}, &placed{0, fmt.Errorf("mission %q is not an object", id)}
	case r.MissionID == "":
		r.MissionID = id
	case r.MissionID != id:
		return Record{}, &placed{0, fmt.Errorf("mission %q is kept under the id %q", r.MissionID, id)}
	}
	r.CreatedAt, r.UpdatedAt = r.CreatedAt.UTC(), r.UpdatedAt.UTC()
	r.State = strings.ReplaceAll(strings.ToLower(r.State), "-", "_")
	switch {
	case InFlight(r.State), r.State == "completed", r.State == "failed", r.State == "aborted":
		return r, nil
	}
	return Record{}, &placed{0, fmt.Errorf("mission %q has the unknown state %q", id, r.State)}
}

// locate finds out where an error of encoding/json shows.
func locate(dec *json.Decoder, text []byte, err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	var at int64
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset - 1
		if at == int64(len(text))-1 && strings.Contains(syntax.Error(), "unexpected end") {
			at++
		}
	case errors.As(err, &typ):
		at = typ.Offset - 1
	case dec != nil:
		at = dec.InputOffset()
	}
	return &placed{at, err}
}

func firstBadUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}
