package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// roomCode is the answer of POST /api/v1/ui/codes.
type roomCode struct {
	Code      string    `json:"code"`
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (a *app) uiCommand() *cobra.Command {
	var open bool
	cmd := &cobra.Command{
		Use: "ui", Short: "open the Control Room in a browser", Args: cobra.NoArgs,
		Long: `Print a link that opens the Control Room as you. The link holds a code that is
good once and for one minute; the tab that opens it gets a session for twelve
hours, which ends with the tab, with "Sign out" or with the host.

With --open the link is opened in the browser of this machine. From another
machine, forward the port first: ssh -L 8122:127.0.0.1:8122 HOST.`,
		Example: "  airlock ui\n  airlock ui --open\n  airlock ui --json",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().BoolVar(&open, "open", false, "open the link in this machine's browser (xdg-open)")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		text, err := c.call(cmd.Context(), http.MethodPost, "/api/v1/ui/codes", struct{}{})
		if err != nil {
			return err
		}
		if *asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
			return nil
		}
		var code roomCode
		if err := json.Unmarshal(text, &code); err != nil {
			return fmt.Errorf("the answer of %s is not what this version knows: %w", c.where, err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n", printable(code.URL))
		fmt.Fprintln(cmd.ErrOrStderr(), "The link works once, within a minute. Keep it to yourself: whoever opens it is you.")
		if open {
			return openLink(cmd.Context(), code.URL)
		}
		return nil
	})
	return cmd
}

// openLink opens a link in the browser without showing it to other users: what
// is on a command line everybody can read, so a private file leads there.
func openLink(ctx context.Context, link string) error {
	opener, err := exec.LookPath("xdg-open")
	if err != nil {
		return errors.New("xdg-open is not there; open the link by hand")
	}
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "airlock-ui-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	page := filepath.Join(dir, "open.html")
	text := `<!doctype html><title>Airlock</title><meta http-equiv="refresh" content="0;url=` + html.EscapeString(link) + `">`
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		return err
	}
	if err := exec.CommandContext(ctx, opener, page).Run(); err != nil { //nolint:gosec // the user's opener
		return fmt.Errorf("open the browser (open the link by hand): %w", err)
	}
	select { // the browser may still be starting
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	return nil
}
