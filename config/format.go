package config

import (
	"bytes"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Fmt is src in the canonical layout. A text that does not parse is returned as
// it is, with what is wrong with it.
func Fmt(src []byte, filename string) ([]byte, hcl.Diagnostics) {
	text := bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	if diags := checkText(filename, text); diags.HasErrors() {
		return src, diags
	}
	if _, diags := hclsyntax.ParseConfig(text, filename, hcl.InitialPos); diags.HasErrors() {
		return src, diags
	}
	return hclwrite.Format(text), nil
}

// Files are the configuration files at path: path itself, or the *.hcl files of
// the directory in the order in which Load reads them.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	return hclFiles(path)
}
