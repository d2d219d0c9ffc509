package fake

import (
	"path/filepath"
	"runtime"

	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

func (c *cell) ref() *pluginv1.CellRef {
	return &pluginv1.CellRef{
		CellId: c.spec.GetCellId(), Incarnation: c.spec.GetIncarnation(), DriverState: []byte("fake/1"),
	}
}

func (c *cell) view() *pluginv1.Cell {
	return &pluginv1.Cell{
		Ref: c.ref(), Link: filepath.Join(c.spec.GetLinkDir(), "link.sock"),
		StartedAt: timestamppb.New(c.started),
		Facts: &pluginv1.CellFacts{
			Os: runtime.GOOS, Arch: runtime.GOARCH, Root: "the host's own",
			Network: c.spec.GetNetwork().GetMode(),
			Link:    pluginv1.LinkProtection_LINK_PROTECTION_UNPROTECTED,
			Uid:     c.spec.GetUid(), Gid: c.spec.GetGid(),
			Limits: limits(), Confinement: []string{"none"},
		},
	}
}

func (c *cell) status() *pluginv1.CellStatus {
	return &pluginv1.CellStatus{
		State: c.state, StartedAt: timestamppb.New(c.started), ExitReason: c.reason, Limits: limits(),
	}
}

func limits() map[string]string {
	const no = "not-enforced:fake driver"
	return map[string]string{"cpu": no, "memory": no, "pids": no, "disk": no}
}

// move goes from one state to another; being there already is fine.
func (c *cell) move(from, to pluginv1.CellState) error {
	if c.state != from && c.state != to {
		return plugin.FailedPrecondition("cell %s is %s", c.spec.GetCellId(), c.state)
	}
	c.state = to
	return nil
}

func (c *cell) end(reason pluginv1.ExitReason) {
	if c.state == pluginv1.CellState_CELL_STATE_EXITED {
		return
	}
	c.state, c.reason = pluginv1.CellState_CELL_STATE_EXITED, reason
	c.stop()
}
