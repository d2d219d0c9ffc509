// Command imagetool is `airlock image build` alone: what the tests of the
// qemu-kvm driver, which may not import the host, make their image with.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/airlock-host/airlock/host/internal/image"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: imagetool DIR ROOT KERNEL")
		os.Exit(1)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir, root, kernel string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, errKernel := image.BuildKernel(context.Background(), dir, kernel)
	_, errRoot := image.BuildRoot(context.Background(), dir, root)
	return errors.Join(errKernel, errRoot)
}
