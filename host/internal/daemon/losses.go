package daemon

import (
	"context"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/store"
)

// findLosses says loudly when one half of what proves the journals is gone
// while the other half is there: the store, or the signed heads outside of it.
// The host starts all the same; what it means is in status until the next start.
func (h *host) findLosses() error {
	h.trouble = append(h.trouble, h.heads.Trouble()...)
	file := h.cfg.Governance.Head.File
	signed, err := h.heads.Any()
	if err != nil {
		return fmt.Errorf("look for signed heads: %w", err)
	}
	if h.store.Fresh() && signed {
		h.log.Error("the store is new, but there are signed heads of its tasks: the store was lost or data_dir is another one", "data_dir", h.cfg.DataDir, "heads", file)
		h.trouble = append(h.trouble, fmt.Sprintf("the store in %s is new, but %s holds signed heads of older tasks: the store was lost, or data_dir is another one. "+
			"Every mission of before is gone from this host. Stop it and put the store back, or, if a new beginning was meant, move the file of heads away", h.cfg.DataDir, file))
		return nil
	}
	if h.store.Fresh() || !h.heads.Fresh() {
		return nil
	}
	rows, _, err := h.store.Missions(context.Background(), store.MissionFilter{Limit: 1})
	if err != nil {
		return fmt.Errorf("look for missions: %w", err)
	}
	if len(rows) > 0 {
		h.log.Error("the file of signed heads is gone, but the store has missions: until they are signed anew nothing shows whether their journals were cut or rewritten", "heads", file)
		h.trouble = append(h.trouble, fmt.Sprintf("the file of signed heads %s was not there, but the store has missions: nothing shows whether their journals were cut or rewritten before this start. "+
			"Stop the host and put the file back (with %s.ended), or export and verify what matters; tasks are signed anew as they go on", file, file))
	}
	return nil
}
