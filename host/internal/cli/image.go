package cli

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/host/internal/image"
)

func (a *app) imageCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "image",
		Short: "Build the kernels and root file systems that the qemu-kvm driver boots.",
	}, a.imageBuildCommand())
}

func (a *app) imageBuildCommand() *cobra.Command {
	var out, root, kernel string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "build -o DIR [--root SOURCE] [--kernel-deb SOURCE]",
		Short: "Build an image for the qemu-kvm driver.",
		Long: `Build an image for the qemu-kvm driver.

--root is a directory, a tar of one (gzip or not), an archive that "docker save"
has written, or an OCI layout. It needs no init and no service: the cell agent
comes in at boot. Device nodes are left out.

--kernel-deb is a Debian linux-image package, or a directory into which one was
unpacked. The kernel is unpacked (LZ4 or gzip), and the modules that a guest
needs are taken out of the package in the order in which they are loaded.

Both may go into one directory, or each into its own: the driver's image is
where root.json lies, its kernel is the vmlinux beside a kernel.json.`,
		Example: `  apt-get download linux-image-cloud-amd64
  airlock image build -o /var/lib/airlock/images/debian --root ./rootfs --kernel-deb linux-image-*.deb
  docker save debian:bookworm-slim -o d.tar && airlock image build -o images/debian --root d.tar`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if root == "" && kernel == "" {
				return failf(ExitFailed, "nothing to build: give --root, --kernel-deb or both")
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return err
			}
			built := struct {
				Dir    string        `json:"dir"`
				Kernel *image.Kernel `json:"kernel,omitempty"`
				Root   *image.Root   `json:"root,omitempty"`
			}{Dir: out}
			var err error
			if kernel != "" {
				if built.Kernel, err = image.BuildKernel(cmd.Context(), out, kernel); err != nil {
					return err
				}
			}
			if root != "" {
				if built.Root, err = image.BuildRoot(cmd.Context(), out, root); err != nil {
					return err
				}
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(built)
			}
			if k := built.Kernel; k != nil {
				fmt.Fprintf(cmd.OutOrStdout(), "kernel %s with %d modules\n", k.Release, len(k.Modules))
			}
			if r := built.Root; r != nil {
				fmt.Fprintf(cmd.OutOrStdout(), "root file system of %d MiB from a %s\n", r.Bytes>>20, r.Source)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "directory to write into")
	f.StringVar(&root, "root", "", "what the root file system is made of")
	f.StringVar(&kernel, "kernel-deb", "", "kernel package, or a directory with an unpacked one")
	f.BoolVar(&asJSON, "json", false, "print what was built as JSON")
	_ = cmd.MarkFlagRequired("output")
	return cmd
}
