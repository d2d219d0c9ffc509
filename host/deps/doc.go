// Package deps holds the test of the dependency rule (docs/architecture.md).
package deps
