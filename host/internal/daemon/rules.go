package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
)

// saltFile holds the salt of redacted values' digests, so that records of
// different days can be compared.
const saltFile = "redact.salt"

// compileRules makes the rule set of the governance block, for a host with this
// data directory, which a reload does not change.
func compileRules(cfg *config.Config, dataDir string) (*gate.Rules, error) {
	salt, err := loadSalt(filepath.Join(dataDir, saltFile))
	if err != nil {
		return nil, fmt.Errorf("salt for redaction: %w", err)
	}
	rules, diags := gate.Compile(cfg.Governance, gate.WithSalt(salt))
	if diags.HasErrors() {
		return nil, fmt.Errorf("governance rules: %w", diags)
	}
	return rules, nil
}

func loadSalt(path string) ([]byte, error) {
	salt, err := os.ReadFile(path)
	if err == nil && len(salt) >= 32 {
		return salt, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	salt = make([]byte, 32)
	if _, err := rand.Read(salt); err != nil {
		return nil, err
	}
	return salt, renameio.WriteFile(path, salt, 0o600)
}

// instances are all plugin instances of a configuration, policy plugins too.
func instances(cfg *config.Config) []config.Instance {
	list := slices.Clone(cfg.Instances)
	for _, p := range cfg.Governance.PolicyPlugins {
		list = append(list, p.Instance)
	}
	return list
}
