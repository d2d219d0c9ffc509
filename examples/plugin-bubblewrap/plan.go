package main

import (
	"context"
	"os"
	"path/filepath"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation/local"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Where things are in a cell.
const (
	cellAgent = "/airlock/cell"
	cellLink  = "/airlock/link"
)

// plan is the command line that makes a cell, and what is true inside.
func (d *driver) plan(_ context.Context, p *local.Place) (*local.Plan, error) {
	s, spec := d.config.Load(), p.Spec
	if s.program == "" {
		return nil, plugin.Unavailable("bwrap was not found; install the package bubblewrap")
	}
	root := os.Geteuid() == 0
	facts := &pluginv1.CellFacts{
		Root:    "a root of its own, with the machine's /usr read-only and a fresh /tmp",
		Network: spec.GetNetwork().GetMode(), Uid: spec.GetUid(), Gid: spec.GetGid(),
		Link:        pluginv1.LinkProtection_LINK_PROTECTION_UNPROTECTED,
		Confinement: []string{"no_new_privs", "namespaces: pid, mount, ipc, uts, cgroup"},
	}
	argv := []string{s.program, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "cell", "--as-pid-1"}
	switch {
	case root:
		// The agent keeps what it needs to serve another user; the workload gets
		// nothing of it.
		argv = append(argv, "--cap-drop", "ALL")
		for _, c := range []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP"} {
			argv = append(argv, "--cap-add", c)
		}
		if facts.GetUid() != 0 {
			facts.Link = link(0)
			facts.Confinement = append(facts.Confinement, "a uid of its own")
		}
	case spec.GetUid() != 0 && spec.GetUid() != uint32(os.Geteuid()):
		return nil, plugin.FailedPrecondition("uid %d cannot be given: the driver runs as the ordinary user %d", spec.GetUid(), os.Geteuid())
	default:
		facts.Uid, facts.Gid = 0, 0 // the agent's own, root of a user namespace
		argv = append(argv, "--unshare-user", "--uid", "0", "--gid", "0")
		facts.Confinement = append(facts.Confinement, "a user namespace")
	}
	if facts.GetNetwork() != pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		argv = append(argv, "--unshare-net")
		facts.Confinement = append(facts.Confinement, "a network namespace without interfaces")
	}
	argv = append(argv, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chmod", "1777", "/tmp",
		"--tmpfs", "/run", "--dir", "/airlock",
		"--ro-bind", spec.GetAgentBinary(), cellAgent, "--bind", spec.GetLinkDir(), cellLink)
	argv = append(argv, system(s.ReadOnly)...)
	for _, v := range spec.GetVolumes() {
		how := "--bind"
		if v.GetReadOnly() {
			how = "--ro-bind"
		}
		argv = append(argv, how, v.GetHostPath(), filepath.Clean(v.GetTarget()))
	}
	argv = append(argv, "--chdir", "/", cellAgent, "serve", "--link-dir", cellLink, "--secret-fd", local.SecretFD)
	return &local.Plan{
		Argv: argv, Facts: facts, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		// The agent is init of the cell's pid namespace: with it the kernel ends
		// everything else.
		Proof: pluginv1.ProofMethod_PROOF_METHOD_PID_NAMESPACE_GONE,
	}, nil
}

// system are the machine's programs: /usr, the directories and links that lead
// there, and what was configured.
func system(more []string) (argv []string) {
	for _, dir := range append([]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}, more...) {
		st, err := os.Lstat(dir)
		switch {
		case err != nil: // not on this machine
		case st.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(dir); err == nil {
				argv = append(argv, "--symlink", to, dir)
			}
		default:
			argv = append(argv, "--ro-bind", dir, dir)
		}
	}
	return argv
}
