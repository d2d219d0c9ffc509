package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
)

// tellSystemd says that the host is up, that it goes when the context ends, and,
// where the unit has a watchdog, that it is alive: as long as its own operator
// socket answers. Without systemd it does nothing.
func tellSystemd(ctx context.Context, socket string, log hclog.Logger) {
	tell := func(state string) bool {
		told, err := sd.SdNotify(false, state)
		if err != nil {
			log.Warn("systemd could not be told", "state", state, "error", err)
		}
		return told
	}
	if !tell(sd.SdNotifyReady) {
		return
	}
	context.AfterFunc(ctx, func() { tell(sd.SdNotifyStopping) })
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog's interval cannot be read", "error", err)
	}
	if every <= 0 {
		return
	}
	go func() {
		tick := time.NewTicker(every / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := alive(ctx, socket, every/3); ctx.Err() != nil {
				return
			} else if err != nil {
				log.Error("the host does not answer itself; the watchdog is not told", "error", err)
				continue
			}
			tell(sd.SdNotifyWatchdog)
		}
	}()
}

// alive asks the host's operator socket whether the process lives.
func alive(ctx context.Context, socket string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/livez", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/livez answers %s", resp.Status)
	}
	return nil
}
