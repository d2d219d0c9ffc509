// Package docs holds the documentation's pages, so that a host can show them
// without a network. It imports nothing of Airlock. The one idea: what is read
// on the host is what was written for this version.
package docs

import "embed"

// Pages are the pages as Markdown, by their path below this directory.
//
//go:embed *.md drivers/*.md
var Pages embed.FS
