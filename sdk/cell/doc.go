// Package cell is the cell link: what the host and the cell agent
// (airlock-cell) share to talk over one byte stream per cell, and the host's
// client of it. It may import proto/, yamux and the standard library, nothing
// else: the cell agent is small because this package is.
//
// The one idea: the transport may lose, tear or repeat whatever was not
// acknowledged, so every connection begins anew (the opening), and everything
// that matters carries an offset, a key or a generation.
//
// # The opening
//
// The host writes a preamble: 8 bytes of magic, a 16-byte nonce, and the first
// 16 bytes of HMAC-SHA-256 over the nonce with the cell's secret. The agent
// throws its input away until it has read a valid preamble whose nonce it has
// not seen before, and answers with its own: another magic, its nonce, and a
// MAC over both nonces. The host throws its input away until it has read that.
// From there on yamux runs, the host as its client; the host's first frame on
// the control stream is Hello, whose proof is a MAC over both nonces. So each
// end has proven to the other, over fresh nonces, that it has the secret.
//
// A byte stream that outlives its connections (a virtio-serial port) may carry
// the rest of a torn frame in front of the next preamble, and yamux would
// swallow it. Behind its preamble the host therefore escapes the first byte of
// the magic wherever it occurs, so that the agent sees a preamble in the middle
// of a stream for what it is, and no byte of it is ever taken for data. The
// other direction needs none of this: the host looks for the agent's preamble
// only once, and nobody can forge one over the host's fresh nonce.
package cell
