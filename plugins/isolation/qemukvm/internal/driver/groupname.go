package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"
)

// groupParent names the group of an instance's cells. Host and instance are
// both in it, so that two instances never take each other's cells for
// leftovers.
func groupParent(configured *string, hostID, instance string) string {
	parent := "airlock"
	if configured != nil && *configured != "" {
		parent = *configured
	}
	sum := sha256.Sum256([]byte(hostID + "\x00" + instance))
	return path.Join(parent, label(hostID, 8)+"-"+label(instance, 24)+"-"+hex.EncodeToString(sum[:4]))
}

// label makes a readable piece of a group's name; it need not be unique.
func label(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), n)]
}
