package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// What happens to objects that a mission's role owns when it is revoked.
const (
	ownedKeep     = "keep"
	ownedReassign = "reassign"
	ownedDrop     = "drop"
)

// config is an instance's config block.
type config struct {
	Host            string      `json:"host"`
	Port            uint16      `json:"port"`
	Database        string      `json:"database"`
	User            string      `json:"user"`
	Password        *string     `json:"password"`
	SSLMode         string      `json:"sslmode"`
	CAFile          *string     `json:"ca_file"`
	Insecure        bool        `json:"insecure"`
	ClientHost      *string     `json:"client_host"`
	ClientPort      *uint16     `json:"client_port"`
	Roles           []string    `json:"roles"`
	Privileges      []privilege `json:"privileges"`
	TTL             string      `json:"ttl"`
	ConnectionLimit int         `json:"connection_limit"`
	Owned           string      `json:"owned"`
	ReassignTo      *string     `json:"reassign_to"`
	Timeout         string      `json:"timeout"`
}

// privilege is one GRANT to a mission's role.
type privilege struct {
	Allow []string `json:"allow"`
	On    string   `json:"on"`
	Name  string   `json:"name"`
}

func schema() *pluginv1.ConfigSchema {
	return plugin.Schema(
		plugin.String("host", "Address of the server, or the directory of its unix socket.", plugin.Required()),
		plugin.Number("port", "Port of the server.", plugin.Default(5432), plugin.Range(1, 65535)),
		plugin.String("database", "Database that missions work in.", plugin.Required()),
		plugin.String("user", "Role that this plugin logs in as: a superuser, or one with CREATEROLE.", plugin.Required()),
		plugin.String("password", "Its password; null where the server asks for none.", plugin.Sensitive()),
		plugin.String("sslmode", "TLS to the server: verify-full, verify-ca, require or disable. The last two need a socket, "+
			"a loopback address or insecure.", plugin.Default("verify-full"), plugin.OneOf("verify-full", "verify-ca", "require", "disable")),
		plugin.String("ca_file", "PEM file of the authorities that may vouch for the server, instead of the system's.", plugin.AbsolutePath()),
		plugin.Bool("insecure", "Allow a connection to another machine that does not check who answers.", plugin.Default(false)),
		plugin.String("client_host", "PGHOST of the missions, where they see the server under another name; null = host."),
		plugin.Number("client_port", "PGPORT of the missions; null = port.", plugin.Range(1, 65535)),
		plugin.StringList("roles", "Roles that every mission's role becomes a member of.", plugin.Default([]string{})),
		plugin.Attribute("privileges", "list(object({allow=list(string), on=string, name=string}))",
			"Privileges that every mission's role is granted: allow = SELECT, …; on = database, schema, table, sequence, "+
				"tables_in_schema, sequences_in_schema or functions_in_schema; name = which, with schema.", plugin.Default([]any{})),
		plugin.String("ttl", "How long a password is taken at most (VALID UNTIL), from the grant on.", plugin.Default("24h"), plugin.Duration()),
		plugin.Number("connection_limit", "Sessions that one mission may have at once.", plugin.Default(4), plugin.Range(1, 1000)),
		plugin.String("owned", "What a revocation does with objects that the role owns: keep gives them to a new role that nobody can "+
			"use, reassign to reassign_to, drop drops them.", plugin.Default(ownedKeep), plugin.OneOf(ownedKeep, ownedReassign, ownedDrop)),
		plugin.String("reassign_to", "Role that gets the objects with owned = \"reassign\"."),
		plugin.String("timeout", "How long one statement may take, and how long a connection may need.", plugin.Default("10s"), plugin.Duration()),
	)
}

// settings is a configuration that was found good.
type settings struct {
	config
	ttl, timeout time.Duration
	ca           []byte
	hostID       string
}

// Validate checks what the schema cannot.
func (*postgres) Validate(_ context.Context, raw []byte) []*pluginv1.Diagnostic {
	var c config
	if err := plugin.DecodeConfig(raw, &c); err != nil {
		return []*pluginv1.Diagnostic{plugin.Problem(nil, "The config cannot be read", err.Error())}
	}
	_, found := c.check()
	return found
}

func (c *config) check() (*settings, []*pluginv1.Diagnostic) {
	var found []*pluginv1.Diagnostic
	bad := func(summary, detail string, path ...any) {
		found = append(found, plugin.Problem(plugin.Path(path...), summary, detail))
	}
	s := &settings{config: *c}
	var err error
	if s.ttl, err = time.ParseDuration(c.TTL); err != nil || s.ttl < time.Minute {
		bad("The life of a password is too short", "Give a duration of at least a minute, for example 24h.", "ttl")
	}
	if s.timeout, err = time.ParseDuration(c.Timeout); err != nil || s.timeout < 100*time.Millisecond {
		bad("The time-out is too short", "Give a duration of at least 100ms, for example 10s.", "timeout")
	}
	if c.Host == "" || strings.ContainsAny(c.Host, ", \x00") {
		bad("The host is none", "Give one address, or one directory of a unix socket.", "host")
	}
	if (c.SSLMode == "disable" || c.SSLMode == "require") && !c.Insecure && !near(c.Host) {
		bad("Nobody checks who answers", "Use verify-full, or set insecure = true if the way to the server is protected otherwise.", "sslmode")
	}
	if c.CAFile != nil {
		if s.ca, err = os.ReadFile(*c.CAFile); err != nil {
			bad("The authorities cannot be read", err.Error(), "ca_file")
		}
	}
	for name, v := range map[string]string{"database": c.Database, "user": c.User} {
		if v == "" || strings.Contains(v, "\x00") {
			bad("A name is missing", "Give the name of the "+name+".", name)
		}
	}
	for i, r := range c.Roles {
		if r == "" || len(r) > maxIdentifier {
			bad("The role is none", fmt.Sprintf("A role has a name of 1 to %d bytes.", maxIdentifier), "roles", i)
		}
	}
	for i, p := range c.Privileges {
		if _, err := p.statement("role"); err != nil {
			bad("The privilege is none", err.Error(), "privileges", i)
		}
	}
	if (c.Owned == ownedReassign) != (c.ReassignTo != nil && *c.ReassignTo != "") {
		bad("Contradiction", `reassign_to belongs to owned = "reassign", and the other way round.`, "reassign_to")
	}
	return s, found
}

// near says whether a host is this machine.
func near(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Configure takes every change live. Another server or database is refused:
// what was granted there could not be found any more.
func (p *postgres) Configure(_ context.Context, req *pluginv1.ConfigureRequest) error {
	var c config
	if err := plugin.DecodeConfig(req.GetConfigJson(), &c); err != nil {
		return err
	}
	s, found := c.check()
	if len(found) > 0 {
		path := ""
		if steps := found[0].GetPath(); len(steps) > 0 {
			path = steps[0].GetAttribute() + ": "
		}
		return plugin.InvalidArgument("%s%s: %s", path, found[0].GetSummary(), found[0].GetDetail())
	}
	s.hostID = req.GetHostId()
	state, err := openState(req.GetStateDir())
	if err != nil {
		return plugin.FailedPrecondition("the state directory cannot be used: %v", err)
	}
	p.current.Store(&instance{settings: s, state: state})
	p.watch()
	return nil
}

// request is what an agent block may ask for: less than the configuration
// gives, never more.
type request struct {
	Roles           []string `json:"roles"`
	TTL             string   `json:"ttl"`
	ConnectionLimit int      `json:"connection_limit"`
	ReadOnly        bool     `json:"read_only"`
}

// narrowed reads a request and applies it.
func (s *settings) narrowed(raw []byte) (*settings, *request, error) {
	var r request
	if len(raw) > 0 {
		if err := plugin.DecodeConfig(raw, &r); err != nil {
			return nil, nil, plugin.InvalidArgument("the request of the grant: %v", err)
		}
	}
	out := *s
	for _, role := range r.Roles {
		if !slices.Contains(s.Roles, role) {
			return nil, nil, plugin.InvalidArgument("the request of the grant: the role %q is not one of the instance's", role)
		}
	}
	if r.Roles != nil {
		out.Roles = r.Roles
	}
	if r.TTL != "" {
		d, err := time.ParseDuration(r.TTL)
		if err != nil || d <= 0 || d > s.ttl {
			return nil, nil, plugin.InvalidArgument("the request of the grant: ttl is a duration of at most %v", s.ttl)
		}
		out.ttl = d
	}
	if r.ConnectionLimit < 0 || r.ConnectionLimit > s.ConnectionLimit {
		return nil, nil, plugin.InvalidArgument("the request of the grant: connection_limit is at most %d", s.ConnectionLimit)
	}
	if r.ConnectionLimit > 0 {
		out.ConnectionLimit = r.ConnectionLimit
	}
	return &out, &r, nil
}
