package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Labels of the containers that cells are. The first are there for people and
// filters; the driver itself reads labelCell.
const (
	labelOwner       = "airlock.owner"       // the host whose driver made it
	labelHost        = "airlock.host_id"     // the host that it is for: the same one, but in tests
	labelInstance    = "airlock.instance"    // the HCL label of the isolation block
	labelCellID      = "airlock.cell_id"     //
	labelIncarnation = "airlock.incarnation" //
	labelAttempt     = "airlock.attempt"     // random, of the call that made it
	labelCell        = "airlock.cell"        // note as JSON
)

// noteVersion is the version of notes and handles. A reader takes every
// version up to its own.
const noteVersion = 1

// note is what a container's label says about its cell: all that cannot be
// read from the engine.
type note struct {
	V           int               `json:"v"`
	CellID      string            `json:"cell_id"`
	Incarnation uint64            `json:"incarnation"`
	LinkDir     string            `json:"link_dir"`
	Boot        string            `json:"boot"` // boot id of the machine that it was made on
	Labels      map[string]string `json:"labels,omitempty"`
	Facts       json.RawMessage   `json:"facts"` // pluginv1.CellFacts

	attempt string // labelAttempt
}

// containerName is the name of a cell's container. Names are unique at the
// engine, so that two makers of one cell cannot both succeed; the hash keeps
// the cells of two hosts apart.
func containerName(owner, cellID string) string {
	sum := sha256.Sum256([]byte(owner))
	return "airlock-" + hex.EncodeToString(sum[:4]) + "-" + cellID
}

// labels are what the container gets; those of the spec do not replace the
// driver's own.
func (in *instance) labels(spec *pluginv1.CellSpec, facts *pluginv1.CellFacts, boot string) (map[string]string, error) {
	host := spec.GetHostId()
	if host == "" {
		host = in.hostID
	}
	out := maps.Clone(spec.GetLabels())
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, map[string]string{
		labelOwner: in.hostID, labelHost: host, labelInstance: in.label, labelCellID: spec.GetCellId(),
		labelIncarnation: strconv.FormatUint(spec.GetIncarnation(), 10),
	})
	n := note{
		V: noteVersion, CellID: spec.GetCellId(), Incarnation: spec.GetIncarnation(), LinkDir: spec.GetLinkDir(),
		Boot: boot, Labels: spec.GetLabels(),
	}
	return out, n.put(out, facts)
}

// put writes a note, with these facts, into a container's labels.
func (n note) put(labels map[string]string, facts *pluginv1.CellFacts) error {
	f, err := protojson.Marshal(facts)
	if err != nil {
		return fmt.Errorf("facts of cell %s: %w", n.CellID, err)
	}
	n.Facts = f
	b, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("label of cell %s: %w", n.CellID, err)
	}
	labels[labelCell] = string(b)
	return nil
}

// readNote reads a container's labels. It is never believed for a container
// of another name.
func (in *instance) readNote(name string, labels map[string]string) (note, error) {
	var n note
	if labels[labelOwner] != in.hostID {
		return n, fmt.Errorf("container %s is not one of this host", name)
	}
	if err := json.Unmarshal([]byte(labels[labelCell]), &n); err != nil {
		return n, fmt.Errorf("container %s has a label that is not a cell's: %w", name, err)
	}
	n.attempt = labels[labelAttempt]
	switch {
	case n.V < 1 || n.V > noteVersion:
		return n, fmt.Errorf("container %s was made by a driver that this one does not know (version %d)", name, n.V)
	case containerName(in.hostID, n.CellID) != name || !filepath.IsAbs(n.LinkDir):
		return n, fmt.Errorf("container %s carries the label of another cell", name)
	}
	return n, nil
}

// link is the socket of the cell agent on the machine.
func (n *note) link() string { return filepath.Join(n.LinkDir, linkSocket) }

// facts are never nil.
func (n *note) facts() *pluginv1.CellFacts {
	f := &pluginv1.CellFacts{}
	if len(n.Facts) > 0 {
		_ = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(n.Facts, f)
	}
	return f
}
