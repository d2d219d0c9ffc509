package main

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// maxIdentifier is the longest name that PostgreSQL does not cut, in bytes.
const maxIdentifier = 63

// prefix begins the name of every role that the plugin makes. It is not
// configurable: with another one, roles that are alive could not be found.
const prefix = "airlock_"

// roleOf is the name of a grant's role. Any id has one, and no two have the
// same.
func roleOf(hostID, grantID string) string { return prefix + digest(hostID, grantID)[:40] }

// taskLabel is a task in a role's comment, from which its roles are found.
func taskLabel(hostID, taskID string) string { return "task=" + digest(hostID, taskID)[:40] }

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// lockKey is the key of a role's advisory lock.
func lockKey(role string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(role))
	return int64(h.Sum64()) //nolint:gosec // any 64 bits will do
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal quotes text of our own making: comments, times and SCRAM verifiers.
func literal(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", "''") + "'"
}

// scram is a password in the form in which the server keeps it, so that the
// password itself is in no statement and in no log of the server.
func scram(password string) (string, error) {
	const rounds = 4096
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	stored := sha256.Sum256(mac(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, b64(salt), b64(stored[:]), b64(mac(salted, "Server Key"))), nil
}

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

var privilegeWord = regexp.MustCompile(`^[A-Za-z]+( [A-Za-z]+)?$`)

// statement is the GRANT of a privilege to a role.
func (p privilege) statement(role string) (string, error) {
	if len(p.Allow) == 0 {
		return "", fmt.Errorf("allow names no privilege")
	}
	for _, a := range p.Allow {
		if !privilegeWord.MatchString(a) {
			return "", fmt.Errorf("%q is no privilege", a)
		}
	}
	if p.Name == "" {
		return "", fmt.Errorf("name is missing")
	}
	var on string
	qualified := pgx.Identifier(strings.SplitN(p.Name, ".", 2)).Sanitize()
	switch p.On {
	case "database", "schema":
		on = strings.ToUpper(p.On) + " " + ident(p.Name)
	case "table", "sequence":
		on = strings.ToUpper(p.On) + " " + qualified
	case "tables_in_schema", "sequences_in_schema", "functions_in_schema":
		on = "ALL " + strings.ToUpper(strings.TrimSuffix(p.On, "_in_schema")) + " IN SCHEMA " + ident(p.Name)
	default:
		return "", fmt.Errorf("on = %q is none of database, schema, table, sequence, tables_in_schema, sequences_in_schema, functions_in_schema", p.On)
	}
	return "GRANT " + strings.ToUpper(strings.Join(p.Allow, ", ")) + " ON " + on + " TO " + ident(role), nil
}
