package cellagent

import (
	"strings"
	"testing"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// The host's MCP endpoint is a door like a gateway's: named in the environment,
// and only for processes of the session, or for its own process alone.
func TestTheDoorToTheMCPEndpoint(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a, h := startAgent(t, m), &carrier{}
		c := a.dialCarried(t, h)
		s := a.sh("s", `echo "$AIRLOCK_MCP_URL $TOLD"; addr=${AIRLOCK_MCP_URL#http://}; exec "$AIRLOCK_CELL" fetch ${addr%/mcp} hello`)
		s.Mcp = &cellv1.Mcp{MainOnly: true}
		s.Env = append(s.Env, "TOLD=${AIRLOCK_MCP_URL}")
		start(t, c, s)
		got := strings.Split(lastLines(readAll(t, c, "s")), "\n")
		if len(got) != 2 || got[1] != ":mcp: hello bye" {
			t.Fatalf("%q", got)
		}
		if f := strings.Fields(got[0]); len(f) != 2 || f[0] != f[1] || !strings.HasPrefix(f[0], "http://127.0.0.1:") || !strings.HasSuffix(f[0], "/mcp") {
			t.Errorf("environment %q", got[0])
		}
		child := a.sh("child", `addr=${AIRLOCK_MCP_URL#http://}; "$AIRLOCK_CELL" fetch ${addr%/mcp} hello; true`)
		child.Mcp = &cellv1.Mcp{MainOnly: true}
		start(t, c, child)
		if got := lastLines(readAll(t, c, "child")); strings.Contains(got, "hello") {
			t.Errorf("a child got %q", got)
		}
		if n := len(h.seen()); n != 1 || h.seen()[0].GetSessionId() != "s" || h.seen()[0].GetPid() == 0 {
			t.Errorf("dials %v", h.seen())
		}
	})
}
