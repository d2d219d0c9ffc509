package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/airlock-host/airlock/host/internal/executor"
	"github.com/airlock-host/airlock/host/internal/store"
)

// laps tell how long a hand-over took, step by step; the zero value tells nothing.
type laps struct {
	began time.Time
	at    []any // for the log
}

func (l *laps) begin() { l.began = time.Now() }

func (l *laps) lap(what string) {
	if !l.began.IsZero() {
		l.at = append(l.at, what, time.Since(l.began).Round(time.Millisecond).String())
	}
}

// takeOver does all that can be done beside the process that has the host, says
// so, and goes on when that one has let go of everything.
func (h *host) takeOver(ctx context.Context) (err error) {
	if h.id, err = executor.LoadIdentity(h.cfg.DataDir); err != nil {
		return err
	}
	if _, err := h.loadKey(); err != nil {
		return err
	}
	h.startPlugins(ctx)
	if err := h.assemble(); err != nil {
		return err
	}
	h.store, err = store.Standby(store.Options{Dir: h.cfg.DataDir, Log: h.log.Named("store"), Hook: h.fail})
	if errors.Is(err, store.ErrStandby) { // a schema that is to be migrated
		h.log.Warn("the host is taken over without a store that is ready; who connects waits longer", "error", err)
		if err := h.awaitHost(ctx); err != nil {
			return err
		}
		if err := h.openStore(); err != nil {
			return err
		}
		return h.begin(ctx)
	}
	if err != nil {
		return err
	}
	if err := h.newEngine(); err != nil {
		return err
	}
	l, err := h.open()
	if err != nil {
		return err
	}
	l.hand() // they are the other's as long as it has the host
	if err := h.awaitHost(ctx); err != nil {
		l.close()
		return err
	}
	if err := h.takeStore(); err != nil {
		l.close()
		return err
	}
	h.took.lap("store")
	l.keep()
	h.exec.Adopt(h.opts.Handed.token())
	if err := h.startEngine(ctx); err != nil {
		l.hand()
		l.close()
		return err
	}
	h.took.lap("missions")
	h.background.Go(func() { // nobody waits for what it says
		if err := h.findLosses(); err != nil {
			h.log.Warn("whether the store or the heads have lost something could not be read", "error", err)
		}
	})
	return h.serve(ctx, l)
}

// awaitHost says that this process is ready and waits for the host.
func (h *host) awaitHost(ctx context.Context) error {
	unwell := map[string]string{}
	for _, i := range instances(h.cfg) {
		if _, err := h.catalog.Capabilities(i.Ref()); err != nil {
			unwell[i.Ref()] = err.Error()
		}
	}
	err := h.opts.Handed.wait(ctx, unwell)
	h.took.begin()
	return err
}

// takeStore takes what only one process can have.
func (h *host) takeStore() (err error) {
	if h.run, err = takeRunDir(h.cfg.RunDir); err != nil {
		return err
	}
	if err := h.openHeads(); err != nil {
		return err
	}
	h.took.lap("heads")
	return h.store.Take(h.heads)
}

// untilEnd waits until the host is to end: because of the context, of a listener,
// or since another process is ready to take it over, which it gives.
func (h *host) untilEnd(ctx context.Context, l *listeners, served chan error) (*successor, error) {
	prepared := make(chan *successor, 1)
	preparing := false
	pctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		if preparing {
			if s := <-prepared; s != nil {
				s.giveUp()
				l.keep()
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case err := <-served:
			served <- nil
			return nil, err
		case <-h.opts.Upgrade:
			if !preparing {
				preparing = true
				go func() { prepared <- h.prepareSuccessor(pctx, l) }()
			}
		case s := <-prepared:
			if preparing = false; s != nil {
				return s, nil
			}
		}
	}
}

// letGo gives everything to a process that is ready. Nothing is refused
// meanwhile: no connection is accepted any more before the engine stops taking
// missions, and those that come wait in the listeners, which stay open. No mission
// is suspended, since none stands still: the other process finds them as they are.
func (h *host) letGo(l *listeners, s *successor, end func(), linked <-chan struct{}, served <-chan error) error {
	var took laps
	took.begin()
	l.hand()
	end()
	err := <-served
	took.lap("requests")
	<-linked
	took.lap("link")
	h.background.Wait()
	h.engine.Close()
	h.closeGates()
	took.lap("engine")
	if h.mirror != nil {
		h.mirror.Abandon()
		h.mirror = nil
	}
	took.lap("mirror")
	err = errors.Join(err, h.store.LetGo())
	took.lap("store")
	err = errors.Join(err, h.letGoOfFiles())
	took.lap("heads")
	if herr := s.handOver(h.exec.Token()); herr != nil {
		h.log.Error("the process that took the host over has failed; this program begins anew", "error", herr)
		s.kill()
		if life := h.opts.Handed.guarded(); life != 0 {
			s.fds["life"] = life
		}
		h.opts.LetGo(&Succession{Handed: &Handover{FDs: s.fds, Token: h.exec.Token()}})
		return err
	}
	took.lap("up")
	h.log.Info("the host was handed over", append([]any{"program", h.opts.Program, "pid", s.pid}, took.at...)...)
	h.opts.LetGo(&Succession{PID: s.pid, Life: s.life})
	s.life = 0
	s.release()
	return err
}
