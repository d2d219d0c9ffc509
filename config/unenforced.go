package config

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// unenforcedRow is a part of the language that this version does not enforce. A
// rule that is accepted and ignored is worse than none, so it is an error.
type unenforcedRow struct {
	block  string // path of the block
	attr   string // empty: the block itself
	value  string // empty: any value but the empty ones
	reason string // ends the sentence "… is not enforced by this version of Airlock: "
}

// unenforcedRows is the one list; whoever builds a part deletes its row.
func unenforcedRows() []unenforcedRow {
	return nil // everything that the language knows is enforced
}

// unenforced is the error for a block (attr empty) or an attribute that the
// table names.
func (d *decoder) unenforced(n *node, attr string, v any, at hcl.Range) hcl.Diagnostics {
	if d.eval.opts.AllowUnenforced || attr != "" && isEmpty(v) {
		return nil
	}
	for _, row := range unenforcedRows() {
		if row.block != n.path || row.attr != attr || row.value != "" && row.value != v {
			continue
		}
		what := n.title()
		if strings.Contains(n.path, ".") && len(n.labels) == 0 {
			what = n.path
		}
		block := what
		if attr != "" {
			what = fmt.Sprintf("%s in %s", attr, block)
			if row.value != "" {
				what = fmt.Sprintf("%s = %q in %s", attr, row.value, block)
			}
		}
		return hcl.Diagnostics{errorAt(at, "Not enforced", "%s is not enforced by this version of Airlock: %s. Remove it, or wait for a version that enforces it.", what, row.reason)}
	}
	return nil
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []string:
		return len(v) == 0
	case []reference:
		return len(v) == 0
	}
	return false
}
