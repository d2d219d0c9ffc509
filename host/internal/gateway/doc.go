// Package gateway is the only way out of a cell that has no network of its
// own: it carries the connections that come over the cell links. Model APIs are
// reached by name, and it adds their credential, meters what they answer and
// keeps the mission within its budget; other hosts are reached through an HTTP
// proxy or a plain forward, by allow list. It imports the standard library and
// hclog, nothing of the host: what it must know of a mission comes with each
// connection, in a Caller.
//
// The one idea: who calls is the cell link that a connection came over, never
// anything that the connection says. So no key in a cell is worth anything, and
// cutting a mission off is a matter of this process alone.
package gateway
