package executor

import (
	"fmt"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// specVersion is the only one that serve takes; it refuses a newer minor.
const specVersion = "1.0.0"

// registration is the closed body of POST /api/v1/executors/register.
type registration struct {
	ExecutorID   string     `json:"executor_id"`
	Name         string     `json:"name"`
	Version      string     `json:"version"`
	SpecVersion  string     `json:"spec_version"`
	Transport    transports `json:"transport_endpoints"`
	Capabilities []string   `json:"capabilities"`
}

type transports struct {
	REST string `json:"rest"`
	WS   string `json:"ws"`
}

// RegisteredName is the name an executor registers under:
// "<orchestrator.name>-<host name>", at most 128 characters.
func RegisteredName(orchestratorName, hostName string) string {
	return cut(orchestratorName+"-"+hostName, 128)
}

// cut shortens to at most n characters, never inside of one.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

// Endpoints are the base URLs to advertise: the advertised host (a name, an
// IPv4 or an IPv6 address, with or without brackets) with the ports of the two
// listeners' addresses. They have no trailing slash: serve would dispatch to
// "//dispatch".
func Endpoints(advertise, restAddr, wsAddr string, tls bool) (rest, ws string, err error) {
	host := strings.TrimSuffix(strings.TrimPrefix(advertise, "["), "]")
	_, restPort, err := net.SplitHostPort(restAddr)
	if err != nil {
		return "", "", fmt.Errorf("rest address %q: %w", restAddr, err)
	}
	_, wsPort, err := net.SplitHostPort(wsAddr)
	if err != nil {
		return "", "", fmt.Errorf("ws address %q: %w", wsAddr, err)
	}
	s := ""
	if tls {
		s = "s"
	}
	return "http" + s + "://" + net.JoinHostPort(host, restPort), "ws" + s + "://" + net.JoinHostPort(host, wsPort), nil
}

// vocabulary is what serve run from source takes as a capability (contract
// 1.9); one word outside of it would cost the whole registration.
var vocabulary = regexp.MustCompile(`^(isolation:[a-z][a-z0-9_-]*` +
	`|runtime:(claude-code|codex|cursor|aider|custom:[a-z][a-z0-9_-]*)` +
	`|platform:[a-z][a-z0-9_-]*/[a-z0-9_]{2,}|resumable|hitl|multi-tenant|x-[a-z][a-z0-9_:-]*)$`)

// hostCapabilities are what the host gives to every mission, whichever agent
// runs it.
func hostCapabilities() []string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return []string{"platform:" + runtime.GOOS + "/" + arch, "resumable", "hitl"}
}

// capabilities are what is advertised now: those of healthy agents, and the
// host's own as soon as there is one.
func (x *Executor) capabilities() []string {
	all := []string{}
	for _, c := range x.opt.Engine.Capabilities() {
		if !vocabulary.MatchString(c) {
			x.log.Warn("capability is not in the contract's vocabulary and is not advertised", "capability", c)
			continue
		}
		all = append(all, c)
	}
	if len(all) > 0 {
		all = append(all, hostCapabilities()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (x *Executor) registration(capabilities []string) registration {
	return registration{
		ExecutorID: x.opt.ID, Name: cut(x.opt.Name, 128), Version: cut(x.opt.Version, 64), SpecVersion: specVersion,
		Transport:    transports{REST: strings.TrimRight(x.opt.REST, "/"), WS: strings.TrimRight(x.opt.WS, "/")},
		Capabilities: capabilities,
	}
}
