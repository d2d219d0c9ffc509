package packages

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
)

// The same files make the same packages, whatever the time of day, the time zone and
// the files' modes. (make reproducible builds the programs twice, too.)
func TestPackagesAreReproducible(t *testing.T) {
	t.Parallel()
	dir := packages(t)
	bin, err := binDir()
	need(t, err)
	copied := filepath.Join(t.TempDir(), "bin")
	output(t, "sh", "-euc", `mkdir -p "$2/plugins"; cp "$1/airlock" "$1/airlock-cell" "$1/airlock-verify" "$2/"
		cp "$1/plugins/airlock-runtime-command" "$2/plugins/"; chmod -R go-rwx "$2"`, "sh", bin, copied)
	again, err := pack("again", copied, oldVersion, "TZ=Pacific/Kiritimati", "PLUGINS=runtime-command")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"airlock_*.deb", "airlock-" + oldVersion + "-*.rpm", "airlock-runtime-command_*.deb", "airlock-runtime-command-*.rpm"} {
		if a, b := sum(t, one(t, dir, pattern)), sum(t, one(t, again, pattern)); a != b {
			t.Errorf("%s differs: %x, %x", pattern, a, b)
		}
	}
}

func sum(t *testing.T, file string) [sha256.Size]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(text)
}
