// Package local is for isolation drivers whose cells are processes of this
// machine, whatever confines them: it keeps the records of cells, starts the
// cell agent, finds it again after a crash, freezes and kills everything below
// it, and answers for it. A driver adds how a cell is started and what is true
// inside. It imports sdk/isolation, sdk/plugin and proto only.
//
// The one idea: a cell is a record on disk and a process that is named beyond
// the life of its pid; whatever is asked is answered from these two, so that
// the plugin may be killed at any time.
package local
