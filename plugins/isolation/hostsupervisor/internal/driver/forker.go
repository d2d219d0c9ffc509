package driver

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/airlock-host/airlock/sdk/stage"
)

// forker starts agents that are their own stage from one OS thread that has
// given up what no cell needs: they inherit that, and need not drop it. The
// thread is made by the first start and lives as long as the driver.
type forker struct {
	once sync.Once
	err  error
	jobs chan func()
}

func (f *forker) do(job func() error) (err error) {
	f.once.Do(f.begin)
	if f.err != nil {
		return f.err
	}
	done := make(chan struct{})
	f.jobs <- func() { defer close(done); err = job() }
	<-done
	return err
}

func (f *forker) begin() {
	f.jobs = make(chan func())
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is fit for nothing else
		err := stage.BoundThread()
		ready <- err
		if err != nil {
			return // and the thread ends
		}
		for job := range f.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		f.err = fmt.Errorf("give up what no cell needs: %w", err)
	}
}
