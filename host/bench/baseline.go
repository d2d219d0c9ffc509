package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// appender is the baseline of everything durable: a plain append with
// fdatasync.
type appender struct {
	file *os.File
	data []byte
}

func newAppender(dir string, size int) (*appender, error) {
	f, err := os.OpenFile(filepath.Join(dir, "baseline"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = 'a' + byte(i%26)
	}
	return &appender{f, data}, nil
}

// append writes and syncs once.
func (a *appender) append() error {
	if _, err := a.file.Write(a.data); err != nil {
		return err
	}
	return unix.Fdatasync(int(a.file.Fd()))
}

func (a *appender) close() {
	_ = a.file.Close()
	_ = os.Remove(a.file.Name())
}

// shells is the baseline of starts: n bare `/bin/sh -c true` at once, from fork
// until all are reaped.
func shells(n int) (time.Duration, error) {
	began := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = exec.Command("/bin/sh", "-c", "true").Run() })
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}
