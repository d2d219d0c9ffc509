package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// openDocker puts the layers of what "docker save" has written over each other.
func openDocker(archive, tree string) (*Root, error) {
	var images []struct {
		Config string
		Layers []string
	}
	if err := readJSON(filepath.Join(archive, "manifest.json"), &images); err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("the archive holds %d images; save one", len(images))
	}
	for _, l := range images[0].Layers {
		if !within(l) {
			return nil, fmt.Errorf("a layer is named %q", l)
		}
		if err := extractFile(tree, filepath.Join(archive, l)); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l, err)
		}
	}
	r := &Root{Source: "docker-archive"}
	if within(images[0].Config) {
		if err := r.readConfig(filepath.Join(archive, images[0].Config)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// descriptor points to a blob of an OCI layout.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Platform  *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// blob is where a descriptor's blob lies; its digest is checked.
func (d descriptor) blob(layout string) (string, error) {
	hash, ok := strings.CutPrefix(d.Digest, "sha256:")
	if !ok || len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
		return "", fmt.Errorf("the digest %q is no SHA-256", d.Digest)
	}
	file := filepath.Join(layout, "blobs", "sha256", hash)
	got, err := sumFile(file)
	if err == nil && got != hash {
		err = fmt.Errorf("the blob %s is damaged", d.Digest)
	}
	return file, err
}

// openOCI puts the layers of an OCI layout's one linux/amd64 image over each
// other.
func openOCI(layout, tree string) (*Root, error) {
	file := filepath.Join(layout, "index.json")
	for range 4 { // an index may lead to another one
		var m struct {
			Manifests []descriptor `json:"manifests"`
			Config    descriptor   `json:"config"`
			Layers    []descriptor `json:"layers"`
		}
		if err := readJSON(file, &m); err != nil {
			return nil, err
		}
		if len(m.Manifests) > 0 {
			d, err := pick(m.Manifests)
			if err == nil {
				file, err = d.blob(layout)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if len(m.Layers) == 0 {
			return nil, errors.New("the image has no layers")
		}
		for _, l := range m.Layers {
			b, err := l.blob(layout)
			if err == nil {
				err = extractFile(tree, b)
			}
			if err != nil {
				return nil, fmt.Errorf("layer %s: %w", l.Digest, err)
			}
		}
		r := &Root{Source: "oci-layout"}
		config, err := m.Config.blob(layout)
		if err != nil {
			return nil, err
		}
		return r, r.readConfig(config)
	}
	return nil, errors.New("the layout's indexes lead nowhere")
}

func pick(list []descriptor) (descriptor, error) {
	var fit []descriptor
	for _, d := range list {
		if p := d.Platform; p == nil || p.OS == "linux" && p.Architecture == "amd64" {
			fit = append(fit, d)
		}
	}
	if len(fit) != 1 {
		return descriptor{}, fmt.Errorf("the layout holds %d images for linux/amd64; keep one", len(fit))
	}
	return fit[0], nil
}

// readConfig takes over what a container image says of itself.
func (r *Root) readConfig(file string) error {
	var c struct {
		Architecture string `json:"architecture"`
		Config       struct {
			Entrypoint, Cmd, Env []string
			User                 string
		} `json:"config"`
	}
	if err := readJSON(file, &c); err != nil {
		return err
	}
	if c.Architecture != "" && c.Architecture != "amd64" {
		return fmt.Errorf("the image is for %s; this driver boots amd64", c.Architecture)
	}
	r.Entrypoint, r.Env, r.User = append(c.Config.Entrypoint, c.Config.Cmd...), c.Config.Env, c.Config.User
	return nil
}

func readJSON(file string, v any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return nil
}
