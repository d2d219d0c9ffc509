package config

import "time"

// gatewaySpec is the gateway block.
func gatewaySpec() *blockSpec {
	named := []labelSpec{{what: "name"}}
	return &blockSpec{name: kindGateway, labels: []labelSpec{instanceLabel()}, repeat: true, doc: "A model API that cells reach through the host, which adds the credential.",
		attrs: []attrSpec{
			{name: "upstream", typ: str("URL", httpURL), required: true, doc: "Base URL of the API. Plain http only where it is on this host."},
			{name: "allow_paths", typ: strs("paths", notEmpty, gatewayPath), doc: "Paths that may be called, with * for any characters. Empty: all."},
			{name: "idle_timeout", typ: duration(100 * time.Millisecond), def: `"2m"`, doc: "Longest silence of the upstream."},
			{name: "total_timeout", typ: duration(100 * time.Millisecond), def: `"20m"`, doc: "Longest time of one request."},
		},
		blocks: []*blockSpec{
			{name: "price", labels: named, repeat: true, doc: "Price of a model in USD per million tokens; `*` is the default.", attrs: []attrSpec{
				{name: "input", typ: usd(), required: true, doc: "USD per million input tokens."},
				{name: "output", typ: usd(), required: true, doc: "USD per million output tokens."},
				{name: "cache_read", typ: usd(), computed: "a tenth of input", doc: "USD per million tokens read from the prompt cache."},
				{name: "cache_write", typ: usd(), computed: "1.25 times input, twice for an hour's cache", doc: "USD per million tokens written to the prompt cache."},
			}},
			{name: "header", labels: named, repeat: true, doc: "A header that the host sets on every request, whatever the cell has sent in it.", attrs: []attrSpec{
				{name: "value", typ: str("string", notEmpty, headerValue), required: true, sensitive: true, doc: "The header's value."},
			}},
		}}
}
