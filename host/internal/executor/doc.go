// Package executor is Airlock's side of the AIWG executor contract: dispatch
// routes, registration, the WebSocket link to `aiwg serve`, delivery of the
// outbox, inbound commands, status. It imports the engine's types, the store's
// outbox rows and the domains, and no other adapter.
//
// The one idea: serve acknowledges nothing, forgets missions at a restart and
// drops whatever comes before it has recorded a mission. So an event counts as
// delivered only when serve can be shown to have processed it, and until then
// it stays in the durable outbox:
//
//   - The first event of a mission is held until GET {serve}/api/v1/missions/{id}
//     answers 200 on this connection.
//   - An event that is not terminal is delivered when a pong answers a ping that
//     was written after it on the same socket: serve handles frames in order, so
//     it has handled the event. Anything else is sent again, in order, after the
//     next resync.
//   - A terminal event is delivered when, after that pong, the read-back shows
//     its state. Otherwise it is sent again.
//   - A mission that serve does not know is offered once, kept, and offered again
//     whenever serve knows it again, for 24 h.
//
// A kill -9 of the host loses nothing, because only delivered events leave the
// outbox; a kill -9 of serve loses only what serve itself had handled and then
// forgot. Events may arrive twice; nothing follows a terminal event, because a
// replay whose end serve already shows is not sent at all.
package executor
