package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/store/mirror"
)

// importedKey is set in the store once an older sandbox's missions were taken
// over.
const importedKey = "legacy_missions_imported"

// importLegacy takes an older sandbox's missions over, once. A file that cannot
// be read stops the import and is left as it is; the mirror then stays off, so
// that it is not overwritten.
func (h *host) importLegacy(ctx context.Context) error {
	if _, err := h.store.Meta(ctx, importedKey); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	dir := h.cfg.DataDir
	if o := h.cfg.Orchestrator; o != nil && o.LegacyDir != "" {
		dir = o.LegacyDir
	}
	if dir == h.cfg.DataDir && !h.store.Fresh() {
		return h.store.SetMeta(ctx, importedKey, "nothing to import")
	}
	got, err := mirror.Import(dir)
	if err != nil {
		return err
	}
	for _, note := range got.Notes {
		h.log.Warn("import of an older sandbox", "dir", dir, "note", note)
	}
	for _, r := range got.Missions {
		l := engine.Legacy{ID: r.MissionID, Objective: r.Objective, Completion: r.Completion, CreatedAt: r.CreatedAt}
		if err := h.engine.TakeOver(ctx, l); err != nil {
			return err
		}
	}
	if len(got.Missions) > 0 {
		h.log.Warn("missions of an older sandbox were taken over and have failed: their processes cannot be adopted", "dir", dir, "count", len(got.Missions))
	}
	return h.store.SetMeta(ctx, importedKey, fmt.Sprintf("%d missions from %s", len(got.Missions), dir))
}

// startMirror begins to keep missions.json.
func (h *host) startMirror(ctx context.Context) {
	if h.cfg.Orchestrator == nil || !h.cfg.Orchestrator.MissionsJSON {
		return
	}
	if err := h.importLegacy(ctx); err != nil {
		h.log.Error("missions.json is not kept: the older file could not be imported; repair or move it, then restart", "error", err)
		return
	}
	h.mirror = mirror.Start(h.cfg.DataDir, nil, h.log.Named("mirror"))
}

// mirrorMission is told of every change of a mission.
func (h *host) mirrorMission(m *mission.Mission) {
	if h.mirror == nil || m.Origin != mission.OriginOrchestrator {
		return
	}
	h.mirror.Put(mirror.New(m.ID, m.Objective, m.Completion, string(m.State), m.SessionID, m.CheckpointID,
		m.Reason == "restart_intensity_exceeded", m.CreatedAt, m.UpdatedAt))
}
