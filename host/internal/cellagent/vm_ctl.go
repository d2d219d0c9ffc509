package cellagent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The control port is how the driver speaks to the init of a VM: a line of JSON
// each way. A line that is torn, because the driver died, is thrown away.

// ctlRequest is what the driver asks.
type ctlRequest struct {
	ID uint64 `json:"id"`
	// Op is "ping", "setup" (once), "stop", "hold", "unhold" or "restored".
	Op    string   `json:"op"`
	Setup *vmSetup `json:"setup,omitempty"`
	Reset *vmReset `json:"reset,omitempty"`
}

// ctlReply is the answer.
type ctlReply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
}

// vmSetup is everything that an init needs to know.
type vmSetup struct {
	Hostname string     `json:"hostname"`
	Secret   []byte     `json:"secret"`
	Reset    vmReset    `json:"reset"`
	Volumes  []vmVolume `json:"volumes"`
	Pids     uint64     `json:"pids"` // 0 = no limit
	Network  *vmNetwork `json:"network,omitempty"`
}

// vmReset is what a VM must not share with the moment it was saved at.
type vmReset struct {
	Now       int64  `json:"now"` // nanoseconds since 1970
	Entropy   []byte `json:"entropy"`
	MachineID string `json:"machine_id"`
	Secret    []byte `json:"secret,omitempty"` // of a restore
}

// vmVolume is a directory of the host that is served over a port.
type vmVolume struct {
	Port     string `json:"port"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// vmNetwork is the one address of a VM that has a network.
type vmNetwork struct {
	Address string `json:"address"` // with its prefix length
	Gateway string `json:"gateway"`
	DNS     string `json:"dns"`
}

const maxCtlLine = 1 << 20

// serveControl answers the driver until the port is closed.
func serveControl(port *vmPort, handle func(*ctlRequest) error) error {
	for r := bufio.NewReaderSize(port, 64<<10); ; {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			continue // the next driver will come
		}
		if err != nil {
			return fmt.Errorf("control port: %w", err)
		}
		var req ctlRequest
		if json.Unmarshal(line, &req) != nil || req.ID == 0 {
			continue
		}
		reply := ctlReply{ID: req.ID}
		if err := handle(&req); err != nil {
			reply.Error = err.Error()
		}
		b, err := json.Marshal(reply)
		if err == nil {
			_, _ = port.Write(append(append([]byte{'\n'}, b...), '\n')) // nobody there: nobody waits for it
		}
	}
}

// readLine throws a line away that is too long.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line) <= maxCtlLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
