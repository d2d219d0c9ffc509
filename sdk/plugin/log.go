package plugin

import (
	"syscall"

	hclog "github.com/hashicorp/go-hclog"
)

// Logger is a logger whose lines the host parses and writes into its own log,
// under the instance's name. Never log secrets with it.
func Logger(name string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: name, Level: hclog.Debug, Output: stderr{}, JSONFormat: true,
	})
}

// stderr writes to descriptor 2 itself: go-plugin replaces os.Stderr, and a
// host that has gone away must not end the plugin in the middle of a write.
type stderr struct{}

func (stderr) Write(p []byte) (int, error) {
	rest := p
	for len(rest) > 0 {
		n, err := syscall.Write(2, rest)
		if err == syscall.EINTR || err == syscall.EAGAIN {
			continue
		}
		if err != nil {
			break
		}
		rest = rest[n:]
	}
	return len(p), nil
}
