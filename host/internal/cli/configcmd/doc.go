// Package configcmd holds the commands around the configuration: init, validate
// and fmt. It imports config and cobra and nothing else of the host. The one
// idea: what validate accepts is what serve starts with, in full.
package configcmd
