package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// files is the host's manifest of what a mission changed.
type files struct {
	Mode     string       `json:"mode"`
	Source   string       `json:"source"`
	Complete bool         `json:"complete"`
	Notes    []string     `json:"notes"`
	Added    int          `json:"added"`
	Modified int          `json:"modified"`
	Deleted  int          `json:"deleted"`
	Bytes    int64        `json:"bytes"`
	Files    []fileChange `json:"files"`
}

type fileChange struct {
	Path    string `json:"path"`
	RawPath []byte `json:"raw_path"`
	Change  string `json:"change"`
	Type    string `json:"type"`
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
	Link    string `json:"link"`
	Kept    bool   `json:"kept"`
	Note    string `json:"note"`
}

// name is the path as the file system has it.
func (f fileChange) name() string {
	if len(f.RawPath) > 0 {
		return string(f.RawPath)
	}
	return f.Path
}

func (a *app) filesCommand() *cobra.Command {
	var dir string
	var force bool
	cmd := &cobra.Command{
		Use: "files MISSION", Short: "show or fetch what a mission changed", Args: cobra.ExactArgs(1),
		Long: `Show what a mission changed in its workspace, once it has ended: also one that
failed or was aborted. With -o what it added or modified is written below a
directory. Nothing is written outside of that, and nothing that is there already
is overwritten without --force; what the mission deleted is listed only.`,
		Example: "  airlock mission files m-abc123\n  airlock mission files m-abc123 -o ./result",
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVarP(&dir, "output", "o", "", "write the files below this directory; it is made when it is missing")
	f.BoolVar(&force, "force", false, "with -o: overwrite files that are there already")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		id := args[0]
		var m mission
		if _, err := c.get(cmd.Context(), "/api/v1/missions/"+segment(id), &m); err != nil {
			return named(err, "mission", id)
		}
		list, text, err := c.files(cmd.Context(), id)
		if err != nil {
			return err
		}
		if dir != "" {
			if err := c.fetchFiles(cmd.Context(), id, list, dir, force, cmd.ErrOrStderr()); err != nil {
				return err
			}
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		if dir == "" {
			showFiles(cmd.OutOrStdout(), list)
		} else {
			fmt.Fprintf(cmd.OutOrStdout(), "%d added, %d modified, %d deleted (those are listed only); written to %s\n", list.Added, list.Modified, list.Deleted, printable(dir))
		}
		for _, note := range list.Notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", printable(note))
		}
		return nil
	})
	return cmd
}

// files reads the manifest.
func (c *client) files(ctx context.Context, id string) (*files, []byte, error) {
	text, err := c.call(ctx, http.MethodGet, filesPath(id), nil, "Accept", "application/json")
	if err != nil {
		return nil, nil, err
	}
	list := &files{}
	if err := json.Unmarshal(text, list); err != nil {
		return nil, nil, fmt.Errorf("the answer of %s is not what this version knows: %w", c.where, err)
	}
	return list, text, nil
}

func filesPath(id string) string { return "/api/v1/missions/" + segment(id) + "/files" }

func showFiles(w io.Writer, list *files) {
	if len(list.Files) == 0 {
		fmt.Fprintln(w, "it changed no files")
		return
	}
	t := table{head: []string{"CHANGE", "TYPE", "SIZE", "PATH", "NOTE"}, wide: 4}
	for _, f := range list.Files {
		path, note := f.Path, f.Note
		if f.Link != "" {
			path += " -> " + f.Link
		}
		if !f.Kept && f.Change != "deleted" {
			note = "not kept: " + note
		}
		t.add(f.Change, f.Type, fmt.Sprint(f.Size), path, note)
	}
	t.fit(w, 0)
}

// fetchFiles writes what is kept below dir.
func (c *client) fetchFiles(ctx context.Context, id string, list *files, dir string, force bool, notes io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	x := &extraction{root: root, force: force, sums: map[string]string{}}
	if err := x.expect(list, dir); err != nil {
		return err
	}
	resp, err := c.open(ctx, http.MethodGet, filesPath(id), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := x.all(resp.Body); err != nil {
		var bad *badArchive
		if errors.As(err, &bad) {
			return failf(ExitFailed, "the files of %s are not what its manifest says: %s", printable(id), bad)
		}
		return fmt.Errorf("the files could not all be written to %s: %w", dir, err)
	}
	if x.leads > 0 {
		fmt.Fprintf(notes, "note: %d symlinks lead out of %s; look at them before you use them\n", x.leads, printable(filepath.Clean(dir)))
	}
	return nil
}
