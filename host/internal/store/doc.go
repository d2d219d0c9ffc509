// Package store is the durable store: journal, projections and outbox in one
// SQLite file. It imports journal and workflow and no other part of the host.
//
// The one idea: many callers, one writer, one fsync. Commit puts a batch into
// the writer's queue and waits; the writer takes everything that is queued,
// checks each batch against the heads it holds in memory, writes all of them in
// one transaction, syncs once and answers. A batch is durable before anybody
// can see it, and a bad one fails alone.
//
// When the disk lets it down the store fails closed. A failed sync or any I/O
// error poisons it until the host is started again: commits are refused
// (ErrPoisoned), reads go on, and nothing is synced again in the hope that it
// works this time. A full disk is not poison: SQLite finds out before the
// commit point, the transaction is rolled back and the batch is refused
// (ErrFull). Space kept in a ballast file is then given to stop, revocation
// and ended events only, and the store opens again by itself once there is
// room.
package store
