package daemon

import (
	"context"
	"encoding/json"
	"os"
	"time"
)

// message is what two processes of a host say to each other at a hand-over, one
// JSON object after the other.
type message struct {
	// Ready, from the new one: it has done all that it can without the store.
	// Unwell are the plugins that do not work for it, by ref, with why.
	Ready  bool              `json:"ready,omitempty"`
	Unwell map[string]string `json:"unwell,omitempty"`
	// Yours, from the old one: nothing of the host is in its hands any more.
	Yours bool   `json:"yours,omitempty"`
	Token string `json:"token,omitempty"` // of the registration
	// Up, from the new one: it serves.
	Up bool `json:"up,omitempty"`
}

// link is one end of what they talk over.
type link struct {
	f  *os.File
	in *json.Decoder
}

// newLink takes a descriptor of a socket that does not block.
func newLink(fd int) *link {
	f := os.NewFile(uintptr(fd), "link") //nolint:gosec // a descriptor
	return &link{f, json.NewDecoder(f)}
}

func (l *link) send(m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = l.f.Write(append(text, '\n'))
	return err
}

// receive waits for the next message; within 0: until the context ends.
func (l *link) receive(ctx context.Context, within time.Duration) (m message, err error) {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() { _ = l.f.SetReadDeadline(time.Unix(1, 0)) })()
	if err = l.in.Decode(&m); err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return m, err
}
