package plugin

import goplugin "github.com/hashicorp/go-plugin"

// Contract is the contract that this SDK speaks; it goes into
// DescribeResponse.contracts.
const Contract = "airlock.plugin.v1"

// ProtocolVersion is the go-plugin application protocol. It changes only when
// the way a plugin is started changes, never for a new contract.
const ProtocolVersion = 1

// The magic cookie tells a plugin that it was started by an Airlock host and
// not by a person. It is no secret.
const (
	MagicCookieKey   = "AIRLOCK_PLUGIN"
	MagicCookieValue = "6b1f0c5e-airlock-plugin-v1-host-starts-me"
)

// SetName is the name of the one plugin set that a process serves.
const SetName = "airlock"

// MaxMessageBytes bounds one gRPC message in either direction: 16 MiB.
const MaxMessageBytes = 16 << 20

// Handshake is what host and plugin must agree on before they talk.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion:  ProtocolVersion,
		MagicCookieKey:   MagicCookieKey,
		MagicCookieValue: MagicCookieValue,
	}
}
