package driver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/airlock-host/airlock/plugins/internal/proc"
)

// engine is the QEMU that VMs run with.
type engine struct {
	program string
	version string // as it says it itself
	machine string // with its version
}

const askTime = 20 * time.Second

var aliasOfQ35 = regexp.MustCompile(`(?m)^q35 .*\(alias of (pc-q35-[0-9.]+)\)`)

// findEngine asks QEMU what it is.
func findEngine(ctx context.Context, c Config) (*engine, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ask := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, c.QEMU, args...)
		cmd.Env = []string{}
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("QEMU (%s %s): %w", c.QEMU, strings.Join(args, " "), err)
		}
		return string(out), nil
	}
	said, err := ask("--version")
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(said, "\n")
	e := &engine{program: c.QEMU, version: strings.TrimPrefix(first, "QEMU emulator version ")}
	if c.Machine != nil && *c.Machine != "" {
		e.machine = *c.Machine
		return e, nil
	}
	said, err = ask("-M", "help")
	if err != nil {
		return nil, err
	}
	m := aliasOfQ35.FindStringSubmatch(said)
	if m == nil {
		return nil, errors.New("QEMU does not say which machine type q35 stands for; set machine")
	}
	e.machine = m[1]
	return e, nil
}

func bootID() string {
	id, err := proc.BootID()
	if err != nil {
		return "" // no record has this one, so that nothing is taken for alive
	}
	return id
}
