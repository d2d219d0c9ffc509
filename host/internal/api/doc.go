// Package api is what an operator talks to: the REST routes, the attach and
// event WebSockets, the operator socket, and who may do what. It imports the
// engine, the domains and the configuration; never the executor or the UI,
// whose handlers are passed in.
//
// The one idea: one table (routes.go) names every route with the credential it
// takes; the router is built from it and nothing else, so there is no route
// without a check. A handler gets the operator that the check found and returns
// an error; the error's kind decides the answer.
package api
