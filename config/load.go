package config

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Options say where Load takes the outside from, and how strict it is. The
// zero value is what `airlock serve` uses.
type Options struct {
	// Strict makes an error of everything that serve would only quarantine: a
	// bad agent, isolation, runtime or revoker block. `airlock validate` sets it.
	Strict bool
	// KeepBroken gives the Config with errors too, as far as it could be made; nil
	// only where the text does not parse. It is for asking the plugins about their
	// blocks all the same, never for running.
	KeepBroken bool
	// LookupEnv reads the environment; nil: os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// ReadSecret reads the file of secret("file:…"); nil: the file system, where
	// a file that others can read is refused.
	ReadSecret func(path string) ([]byte, error)
	// ReadToken reads an operator's token file; nil: the file system, where only
	// mode 0600 or less is accepted.
	ReadToken func(path string) ([]byte, error)
	// Hostname is the default of `name`; nil: os.Hostname.
	Hostname func() (string, error)
	// Sources is filled with what was read, for snippets in diagnostics.
	Sources *Sources
}

func (o Options) withDefaults() Options {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if o.ReadSecret == nil {
		o.ReadSecret = readSecretFile
	}
	if o.ReadToken == nil {
		o.ReadToken = readTokenFile
	}
	if o.Hostname == nil {
		o.Hostname = os.Hostname
	}
	if o.Sources == nil {
		o.Sources = &Sources{}
	}
	return o
}

// Source is one configuration file in memory.
type Source struct {
	Name  string // as diagnostics name it
	Bytes []byte
}

// Sources are the texts behind a configuration's ranges. The zero value is
// ready for use.
type Sources struct {
	files map[string]*hcl.File
}

// Add adds a text, so that diagnostics about it have snippets.
func (s *Sources) Add(name string, text []byte) { s.add(name, &hcl.File{Bytes: text}) }

func (s *Sources) add(name string, f *hcl.File) {
	if s.files == nil {
		s.files = map[string]*hcl.File{}
	}
	s.files[name] = f
}

// Load reads a configuration: a file, or a directory whose *.hcl files make one
// configuration together, in the order of their names (hidden files and
// *.lock.hcl are left out). The Config is nil if and only if the diagnostics
// hold an error (but see Options.KeepBroken).
func Load(path string, opts Options) (*Config, hcl.Diagnostics) {
	sources, diags := readSources(path)
	if diags.HasErrors() {
		return nil, diags
	}
	return Parse(sources, opts)
}

// Parse is Load for texts that are in memory already.
func Parse(sources []Source, opts Options) (*Config, hcl.Diagnostics) {
	opts = opts.withDefaults()
	body, diags := parseSources(sources, opts.Sources)
	if diags.HasErrors() {
		return nil, sorted(diags)
	}
	eval := &evaluator{opts: opts}
	root := newDecoder(eval).root(body)
	cfg, more := build(root, eval)
	diags = append(diags, more...)
	if diags.HasErrors() && !opts.KeepBroken {
		return nil, sorted(diags)
	}
	return cfg, sorted(diags)
}

// parseSources parses every text and merges their top levels into one body.
func parseSources(sources []Source, into *Sources) (*hclsyntax.Body, hcl.Diagnostics) {
	merged := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}}
	var diags hcl.Diagnostics
	for i, src := range sources {
		text := bytes.TrimPrefix(src.Bytes, []byte("\xef\xbb\xbf"))
		into.add(src.Name, &hcl.File{Bytes: text})
		if d := checkText(src.Name, text); d.HasErrors() {
			diags = append(diags, d...)
			continue
		}
		file, d := hclsyntax.ParseConfig(text, src.Name, hcl.InitialPos)
		diags = append(diags, d...)
		if d.HasErrors() || file == nil {
			continue
		}
		into.add(src.Name, file)
		body := file.Body.(*hclsyntax.Body)
		if i == 0 {
			merged.SrcRange, merged.EndRange = body.SrcRange, body.EndRange
		}
		for _, name := range sortedKeys(body.Attributes) {
			attr := body.Attributes[name]
			if first, dup := merged.Attributes[name]; dup {
				diags = append(diags, errorAt(attr.NameRange, "Attribute set twice",
					"%q was already set at %s. An attribute may be set once in all files together.", name, place(first.NameRange)))
				continue
			}
			merged.Attributes[name] = attr
		}
		merged.Blocks = append(merged.Blocks, body.Blocks...)
	}
	return merged, diags
}

func errorAt(rng hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: rng.Ptr()}
}

func warningAt(rng hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	d := errorAt(rng, summary, format, args...)
	d.Severity = hcl.DiagWarning
	return d
}

// absent is a warning about what is in no place.
func absent(summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: summary, Detail: detail}
}

// place is a range as file:line,column.
func place(r hcl.Range) string {
	return fmt.Sprintf("%s:%d,%d", r.Filename, r.Start.Line, r.Start.Column)
}

// sorted orders diagnostics by file and position, so that a fix list reads from
// top to bottom and is the same every time.
func sorted(diags hcl.Diagnostics) hcl.Diagnostics {
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		var ra, rb hcl.Range
		if a.Subject != nil {
			ra = *a.Subject
		}
		if b.Subject != nil {
			rb = *b.Subject
		}
		if c := strings.Compare(ra.Filename, rb.Filename); c != 0 {
			return c
		}
		return ra.Start.Byte - rb.Start.Byte
	})
	return diags
}

func sortedKeys[V any, M ~map[string]V](m M) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
