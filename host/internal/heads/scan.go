package heads

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// Problem is a line of the file that does not count.
type Problem struct {
	File string
	Line int // from 1
	Err  error
	// Tasks are those that the line claims to be about; nil if it cannot be read.
	Tasks []string
}

// Error implements error.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s line %d: %v", p.File, p.Line, p.Err)
}

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Err }

// scan reads a file of records and calls back for each line: with the record,
// or with the problem. It gives the length of the whole lines; what is beyond
// is a torn last line. A file that is not there is empty.
func scan(path string, key Key, want func(line []byte) bool, good func(record.Record), bad func(*Problem)) (whole, size int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		size += int64(len(line))
		if errors.Is(err, io.EOF) {
			return whole, size, nil
		}
		if err != nil {
			return whole, size, err
		}
		whole = size
		if want != nil && !want(line) {
			continue
		}
		rec, err := record.Parse(line[:len(line)-1])
		if err == nil {
			err = rec.Verify(key.record())
		}
		if err != nil {
			p := &Problem{File: path, Line: n, Err: err}
			for i := range rec.Heads {
				p.Tasks = append(p.Tasks, rec.Heads[i].TaskID)
			}
			bad(p)
			continue
		}
		good(rec)
	}
}

// Find gives the highest good head of a task in a file of signed heads. It is
// for verifying away from the host; the problems are those of lines that speak
// of the task or cannot be read.
func Find(path string, key Key, task string) (head journal.Head, ok bool, problems []*Problem, err error) {
	name, err := json.Marshal(task)
	if err != nil {
		return head, false, nil, err
	}
	_, _, err = scan(path, key, func(line []byte) bool { return bytes.Contains(line, name) }, func(r record.Record) {
		for _, h := range r.Heads {
			if h.TaskID == task && (!ok || h.Sequence > head.Sequence) {
				head, ok = h.Head, true
			}
		}
	}, func(p *Problem) { problems = append(problems, p) })
	return head, ok, problems, err
}
