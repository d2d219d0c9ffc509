package plugins

import (
	"errors"
	"os"
	"runtime"
	"sync"
)

// forker starts processes from one thread that lives as long as it does. The
// kernel sends a child its parent-death signal when the *thread* that forked it
// ends, and Go ends threads at will, so an ordinary goroutine would kill
// plugins at random.
type forker struct {
	jobs chan forkJob
	done chan struct{}
	once sync.Once
}

type forkJob struct {
	path  string
	argv  []string
	attr  *os.ProcAttr
	reply chan forked
}

type forked struct {
	process *os.Process
	err     error
}

var errForkerClosed = errors.New("the plugin catalog is closed")

func newForker() *forker {
	f := &forker{jobs: make(chan forkJob), done: make(chan struct{})}
	go func() {
		// Never unlocked: the thread ends with the goroutine, after the last
		// child was waited for.
		runtime.LockOSThread()
		for {
			select {
			case job := <-f.jobs:
				p, err := os.StartProcess(job.path, job.argv, job.attr)
				job.reply <- forked{p, err}
			case <-f.done:
				return
			}
		}
	}()
	return f
}

func (f *forker) start(path string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	reply := make(chan forked, 1)
	select {
	case f.jobs <- forkJob{path, argv, attr, reply}:
		r := <-reply
		return r.process, r.err
	case <-f.done:
		return nil, errForkerClosed
	}
}

func (f *forker) close() { f.once.Do(func() { close(f.done) }) }
