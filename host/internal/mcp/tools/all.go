package tools

import (
	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// All are the tools, in the order of the list.
func All(s workflow.Service, e *Effects) []*kernel.Tool {
	lookups := Lookups(s)
	all := append([]*kernel.Tool{}, lookups...)
	all = append(all, e.Tools()...)
	all = append(all, Goals(s)...)
	all = append(all, Work(s)...)
	return append(all, Sessions(s)...)
}
