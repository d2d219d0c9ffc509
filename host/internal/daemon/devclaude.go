package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/airlock-host/airlock/sdk/fake/messages"
)

const (
	claudeAgent = "claude"                    // the agent block of `airlock dev --agent claude`
	claudeKey   = "ANTHROPIC_API_KEY"         // with it the real API is used
	claudeAPI   = "https://api.anthropic.com" // which is then this
	claudeWait  = 5 * time.Minute             // for the CLI's gates to be tried out
)

// devClaude is what the agent claude of a development host needs.
type devClaude struct {
	binary  string
	keyFile string
	api     *messages.Server // the stand-in; nil: the real API
}

// newDevClaude finds the CLI, and starts the stand-in of the API unless a key is
// configured.
func newDevClaude(path, dir string) (*devClaude, error) {
	binary, err := findClaude(path)
	if err != nil {
		return nil, err
	}
	c := &devClaude{binary: binary}
	if os.Getenv(claudeKey) != "" {
		return c, nil
	}
	key := randomHex(24)
	c.keyFile = filepath.Join(dir, "stand-in.key")
	if err := os.WriteFile(c.keyFile, []byte(key), 0o600); err != nil {
		return nil, err
	}
	c.api, err = messages.Serve("127.0.0.1:0", messages.Options{Check: func(k string) error {
		if k != key {
			return errors.New("not the host's key")
		}
		return nil
	}})
	return c, err
}

func (c *devClaude) close() {
	if c != nil && c.api != nil {
		c.api.Close()
	}
}

// model says where the model is, for people.
func (c *devClaude) model() string {
	if c.api == nil {
		return claudeAPI + ", with the key in " + claudeKey
	}
	return "a stand-in that follows the steps of the prompt (" + claudeKey + " is not set)"
}

// awaitClaude waits until the runtime has tried the CLI's gates out, and says
// meanwhile what it waits for.
func (d *dev) awaitClaude(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claudeWait)
	defer cancel()
	said := ""
	for {
		var view struct {
			Agents []struct {
				Name    string `json:"name"`
				Healthy bool   `json:"healthy"`
				Reason  string `json:"reason"`
			} `json:"agents"`
		}
		err := d.get(ctx, "/api/v1/agents", &view)
		for _, a := range view.Agents {
			if a.Name != claudeAgent {
				continue
			}
			if a.Healthy {
				return nil
			}
			if a.Reason != said {
				said = a.Reason
				fmt.Fprintf(d.errOut, "waiting: %s\n", said)
			}
		}
		select {
		case <-ctx.Done():
			if err != nil && said == "" {
				said = err.Error()
			}
			return fmt.Errorf("the agent claude takes no missions: %s: %w", said, exitCode{5})
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// blocks are the agent claude in HCL.
func (c *devClaude) blocks() string {
	upstream, secret := claudeAPI, "env:"+claudeKey
	if c.api != nil {
		upstream, secret = c.api.URL, "file:"+c.keyFile
	}
	return fmt.Sprintf(`
gateway "anthropic" {
  upstream    = %[1]q
  allow_paths = ["/v1/messages*"]
  header "x-api-key" {
    value = secret(%[2]q)
  }
  price "*" {
    input  = 5
    output = 25
  }
}
runtime "claude-code" "claude" {
  config {
    binary = %[3]q
  }
}
agent %[4]q {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.claude-code.claude
  gateways  = [gateway.anthropic]
  slots     = 2
  governance {
    budget {
      max_cost_usd = 5
      max_tokens   = 5000000
    }
  }
}
`, upstream, secret, c.binary, claudeAgent)
}

// claudeRule shows what a block looks like.
const claudeRule = `
    rule "no-force-push" {
      tool   = "Bash"
      when   = matches("git push .*--force", args.command)
      effect = "deny"
      reason = "history is not rewritten by agents"
    }`

// findClaude finds the native binary of the CLI, and checks that a cell can run
// it. An empty path is `claude` in PATH.
func findClaude(path string) (string, error) {
	const how = "install Claude Code from its vendor (npm install -g @anthropic-ai/claude-code), or name its binary with --claude PATH"
	if path == "" {
		found, err := exec.LookPath("claude")
		if err != nil {
			return "", fmt.Errorf("the agent claude needs Claude Code, and there is no claude in PATH: %s", how)
		}
		path = found
	}
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("--claude: %w: %s", err, how)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--claude: %w", err)
	}
	defer f.Close()
	head := make([]byte, 4)
	if _, err := io.ReadFull(f, head); err != nil || !bytes.Equal(head, []byte("\x7fELF")) {
		return "", fmt.Errorf("%s is not the native binary of Claude Code, but a script or something else; it is in node_modules/@anthropic-ai/claude-code-linux-x64/claude of an installation by npm: name it with --claude PATH", path)
	}
	return path, reachable(path)
}

// reachable says whether a cell can run a program: it must see it, and where
// root runs the host, workload and plugin have users of their own.
func reachable(path string) error {
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/dev", "/root"} {
		if strings.HasPrefix(path, dir+"/") {
			return fmt.Errorf("cells do not see what is in %s: copy Claude Code to a place that they reach, such as /usr/local/bin (install -m 755 %s /usr/local/bin/claude)", dir, path)
		}
	}
	if os.Geteuid() != 0 {
		return nil
	}
	for p, want := path, os.FileMode(0o005); ; p, want = filepath.Dir(p), 0o001 {
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		if st.Mode().Perm()&want != want {
			return fmt.Errorf("%s cannot be used by others than its owner, and agents have users of their own: copy it to a place that they reach, such as /usr/local/bin (install -m 755 %s /usr/local/bin/claude)", p, path)
		}
		if p == "/" {
			return nil
		}
	}
}
