package plugins

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// maxHandshake bounds the handshake line; a certificate is about 900 bytes.
const maxHandshake = 16 << 10

// checkHandshake reads the line that a plugin prints before all else:
// CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE. It checks what go-plugin
// would check, to say it in the operator's words, and more: the socket must
// lie in the directory that was made for it, and mutual TLS is not optional.
func checkHandshake(path, line, socketDir string) *Fault {
	parts := strings.Split(strings.TrimSpace(line), "|")
	core, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) < 4 {
		return faultf(Junk, "%s printed %q to standard output before its handshake", path, clean(strings.TrimRight(line, "\r\n"), 200)).
			advise("a plugin prints nothing there; report it to its author")
	}
	wrong := func(format string, args ...any) *Fault {
		return faultf(WrongProtocol, "%s %s", path, fmt.Sprintf(format, args...)).
			advise("use a build of the plugin for this version of Airlock")
	}
	if core != goplugin.CoreProtocolVersion {
		return wrong("speaks version %d of go-plugin's core protocol, this host speaks %d", core, goplugin.CoreProtocolVersion)
	}
	if parts[1] != strconv.Itoa(plugin.ProtocolVersion) {
		return wrong("speaks version %s of the plugin protocol, this host speaks %d", clean(parts[1], 40), plugin.ProtocolVersion)
	}
	if len(parts) < 5 || parts[4] != string(goplugin.ProtocolGRPC) {
		return wrong("does not serve gRPC")
	}
	if parts[2] != "unix" || filepath.Dir(filepath.Clean(parts[3])) != filepath.Clean(socketDir) {
		return wrong("listens on %s %s instead of a unix socket in PLUGIN_UNIX_SOCKET_DIR", clean(parts[2], 20), clean(parts[3], 200))
	}
	if len(parts) < 6 || len(parts[5]) <= 50 {
		return wrong("gave no certificate, so nobody can tell that it is the one that answers")
	}
	return nil
}

// notForPeople is what go-plugin prints when the magic cookie is another one.
const notForPeople = "not meant to be executed directly"
