//go:build !amd64

package cellagent

// Younger architectures have only the calls with a p in front.
const (
	sysSelect = -2
	sysPoll   = -3
)
