package heads

import (
	"errors"
	"time"

	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// perRecord bounds how many heads one signature covers, so that one line
// stays readable and its loss small.
const perRecord = 512

// run is the goroutine that writes.
func (l *Log) run() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	armed := false
	for {
		select {
		case <-l.stop:
			l.write()
			if err := l.file.close(); err != nil {
				l.fail(err)
			}
			return
		case <-timer.C:
			armed = false
		case <-l.kick:
			l.mu.Lock()
			urgent := l.urgent
			l.mu.Unlock()
			if !urgent {
				if !armed {
					timer.Reset(l.opts.Interval)
					armed = true
				}
				continue
			}
			timer.Stop()
			armed = false
		}
		if !l.write() && !armed {
			timer.Reset(l.opts.Interval)
			armed = true
		}
	}
}

// write makes what is pending durable. On an error it is kept.
func (l *Log) write() bool {
	l.mu.Lock()
	batch := l.pending
	l.pending = make(map[string]journal.NewHead, min(len(batch), perRecord))
	l.urgent = false
	l.writing = len(batch) > 0
	l.mu.Unlock()
	if len(batch) == 0 {
		return true
	}

	err := l.append(batch)

	l.mu.Lock()
	if err != nil {
		for task, h := range batch {
			if newer, ok := l.pending[task]; ok {
				newer.Ended = newer.Ended || h.Ended
				h = newer
			}
			l.pending[task] = h
		}
	} else {
		for task, h := range batch {
			l.live[task] = h
		}
	}
	compact := err == nil && len(l.problems) == 0 && l.file.grown()
	l.mu.Unlock()
	if compact {
		err = l.compact()
	}
	l.fail(err)
	l.mu.Lock()
	l.writing = false
	close(l.flushed)
	l.flushed = make(chan struct{})
	l.mu.Unlock()
	return err == nil
}

// fail notes how the last write went.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.opts.Log.Error("signed heads cannot be written", "file", l.opts.File, "error", err)
	}
	l.err = err
}

func (l *Log) append(batch map[string]journal.NewHead) error {
	hs := make([]journal.NewHead, 0, len(batch))
	for _, h := range batch {
		hs = append(hs, h)
	}
	text, err := l.lines(hs)
	if err != nil {
		return err
	}
	err = l.file.append(text)
	if err == nil && l.opts.Also != nil {
		l.opts.Also(text)
	}
	return err
}

// lines signs heads and gives the records' text.
func (l *Log) lines(hs []journal.NewHead) ([]byte, error) {
	var text []byte
	var errs []error
	for len(hs) > 0 {
		n := min(len(hs), perRecord)
		rec := record.Sign(l.opts.Key.private, l.opts.Now(), hs[:n])
		line, err := rec.Line()
		errs = append(errs, err)
		text = append(text, line...)
		hs = hs[n:]
	}
	return text, errors.Join(errs...)
}

// beginning is a record of no head: with it a file in which nothing is signed
// yet differs from one that was emptied.
func (l *Log) beginning() ([]byte, error) {
	rec := record.Sign(l.opts.Key.private, l.opts.Now(), []journal.NewHead{})
	return rec.Line()
}

// compact leaves one head for each task that is not over, and moves the others
// to the file of ended ones.
func (l *Log) compact() error {
	l.mu.Lock()
	var ended, live []journal.NewHead
	for _, h := range l.live {
		if h.Ended {
			ended = append(ended, h)
		} else {
			live = append(live, h)
		}
	}
	l.mu.Unlock()
	endedText, err := l.lines(ended)
	if err != nil {
		return err
	}
	liveText, err := l.lines(live)
	if err != nil {
		return err
	}
	if len(live) == 0 {
		if liveText, err = l.beginning(); err != nil {
			return err
		}
	}
	if err := l.file.compact(endedText, liveText); err != nil {
		return err
	}
	l.mu.Lock()
	for _, h := range ended {
		delete(l.live, h.TaskID)
	}
	l.mu.Unlock()
	return nil
}

// Sign makes a record of one head, for those who verify elsewhere, with the
// public key that it is signed with. The head is the caller's word: it must have
// verified the chain.
func (l *Log) Sign(h journal.NewHead) (record.Record, record.Key) {
	return record.Sign(l.opts.Key.private, l.opts.Now(), []journal.NewHead{h}), l.opts.Key.record()
}
