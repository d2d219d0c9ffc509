package plugin

import (
	"bufio"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// guardStdout keeps the handshake line the only thing that the host reads on
// standard output. From here on descriptor 1 is standard error, for this
// process and for every child; os.Stdout leads to a filter that lets one
// handshake line through, with the certificate put in, and sends all else to
// standard error.
func guardStdout(certificate string) error {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	host := os.NewFile(uintptr(fd), "handshake")
	if err := unix.Dup3(2, 1, 0); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	os.Stdout = w
	go filterHandshake(r, host, stderr{}, certificate)
	return nil
}

func filterHandshake(from io.Reader, host io.WriteCloser, rest io.Writer, certificate string) {
	lines := bufio.NewReader(from)
	done := false
	for {
		line, err := lines.ReadString('\n')
		switch {
		case line == "":
		case !done && isHandshake(line):
			done = true
			_, _ = io.WriteString(host, certify(line, certificate))
			_ = host.Close()
		default:
			_, _ = io.WriteString(rest, line)
		}
		if err != nil {
			return
		}
	}
}

// isHandshake knows go-plugin's line: CORE|APP|NETWORK|ADDRESS|PROTOCOL|CERT.
func isHandshake(line string) bool {
	parts := strings.Split(strings.TrimSuffix(line, "\n"), "|")
	return len(parts) >= 5 && parts[0] == "1" && (parts[2] == "unix" || parts[2] == "tcp") && parts[4] == "grpc"
}

// certify puts the certificate into the handshake line's sixth field, which
// go-plugin leaves empty for a TLS configuration that it has not made.
func certify(line, certificate string) string {
	parts := strings.Split(strings.TrimSuffix(line, "\n"), "|")
	if certificate == "" {
		return line
	}
	if len(parts) < 6 {
		parts = append(parts, "")
	}
	parts[5] = certificate
	return strings.Join(parts, "|") + "\n"
}
