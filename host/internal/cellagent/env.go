package cellagent

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// workloadEnv is the environment of a session: what the host gave, completed.
// Nothing of the agent's own environment goes in.
//
// Set always: AIRLOCK_SESSION, AIRLOCK_ASK_SOCKET and AIRLOCK_CELL, the path of
// a program that the workload can run as "airlock-cell ask". Where the host
// gave no PATH, the directory of that program is its last entry.
//
// found is how it finds its doors (see proxy.go).
func (a *Agent) workloadEnv(req *cellv1.Start, otherUID bool, found []string) []string {
	uid := os.Geteuid()
	if otherUID {
		uid = int(req.GetUid())
	}
	name, home := lookupUser(uid)
	var env []string
	for _, v := range req.GetEnv() {
		switch n, _, _ := strings.Cut(v, "="); n {
		case "AIRLOCK_SESSION", "AIRLOCK_ASK_SOCKET", "AIRLOCK_CELL":
		default:
			env = append(env, expandDoors(v, found))
		}
	}
	missing := func(n, v string) {
		if lookupEnv(env, n) == "" {
			env = append(env, n+"="+v)
		}
	}
	missing("PATH", defaultPath+":"+a.public.binDir())
	missing("HOME", home)
	missing("USER", name)
	if req.GetTerminal() != nil {
		missing("TERM", "xterm-256color")
	} else {
		missing("TERM", "dumb")
	}
	missing("LANG", "C.UTF-8")
	for _, v := range found {
		n, val, _ := strings.Cut(v, "=")
		missing(n, val)
	}
	return append(env, "AIRLOCK_SESSION="+req.GetSessionId(),
		"AIRLOCK_ASK_SOCKET="+a.public.askSocket(), "AIRLOCK_CELL="+a.public.program())
}

// lookupEnv returns the last value of a name, as execve's caller would see it.
func lookupEnv(env []string, name string) (value string) {
	for _, v := range env {
		if n, val, ok := strings.Cut(v, "="); ok && n == name {
			value = val
		}
	}
	return value
}

// lookupUser finds a uid in the cell's /etc/passwd. os/user would do as much
// and bring its weight.
func lookupUser(uid int) (name, home string) {
	b, err := os.ReadFile("/etc/passwd")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			f := strings.Split(strings.TrimSpace(line), ":")
			if len(f) >= 6 && f[2] == strconv.Itoa(uid) && f[5] != "" {
				return f[0], f[5]
			}
		}
	}
	return strconv.Itoa(uid), "/"
}

// findProgram finds argv[0] as the workload's own shell would: in its PATH.
func findProgram(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // the kernel says what is wrong with it
	}
	denied := false
	for _, dir := range strings.Split(lookupEnv(env, "PATH"), ":") {
		if !strings.HasPrefix(dir, "/") {
			continue // a program out of the current directory has to be asked for
		}
		p := path.Join(dir, name)
		fi, err := os.Stat(p)
		if err != nil || fi.IsDir() {
			continue
		}
		if fi.Mode()&0o111 != 0 {
			return p, nil
		}
		denied = true
	}
	if denied {
		return "", fmt.Errorf("%s: %w", name, unix.EACCES)
	}
	return "", fmt.Errorf("%s: %w in PATH", name, errNoProgram)
}

var errNoProgram = errors.New("program not found")

func parentOf(p string) string { return path.Dir(path.Clean(p)) }

// expandDoors puts a gateway's socket and URL, and the scratch directory, where
// a value of the plan asks for them as ${AIRLOCK_GATEWAY_NAME_SOCKET} or
// ${AIRLOCK_TMP}. Nothing else is expanded.
func expandDoors(v string, found []string) string {
	if !strings.Contains(v, "${AIRLOCK_") {
		return v
	}
	for _, f := range found {
		n, val, _ := strings.Cut(f, "=")
		v = strings.ReplaceAll(v, "${"+n+"}", val)
	}
	return v
}
