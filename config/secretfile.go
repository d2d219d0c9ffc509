package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// maxSecretBytes bounds a secret file and a token file.
const maxSecretBytes = 64 << 10

// readSecretFile reads the file of secret("file:…"). A file that its group may
// read is accepted (0640 root:airlock is how packages ship them); anything that
// others can read, or that anybody but the owner can write, is refused.
func readSecretFile(path string) ([]byte, error) {
	return readRegular(path, maxSecretBytes, func(mode os.FileMode) error {
		if mode&0o027 != 0 {
			return fmt.Errorf("mode %04o: others can read it or its group can write it; run chmod 0600 on it (0640 is accepted)", mode)
		}
		return nil
	})
}

// readTokenFile reads an operator's token: for its owner alone.
func readTokenFile(path string) ([]byte, error) {
	return readRegular(path, maxSecretBytes, func(mode os.FileMode) error {
		if mode&0o077 != 0 {
			return fmt.Errorf("mode %04o: only its owner may read it; run chmod 0600 on it", mode)
		}
		return nil
	})
}

// pathless is err without the path that its caller names already.
func pathless(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}
