package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connect opens a connection of the plugin's own role to a database. Each call
// has one of its own: revocations are rare, and a pool would only have old
// connections to find out about.
func (s *settings) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	password := ""
	if s.Password != nil {
		password = *s.Password
	}
	return s.dial(ctx, database, s.User, password)
}

func (s *settings) dial(ctx context.Context, database, user, password string) (*pgx.Conn, error) {
	// Everything that the environment or a file of the user could say is said
	// here.
	c, err := pgx.ParseConfig("host=/ port=1 user=x database=x sslmode=disable passfile=/dev/null servicefile=/dev/null target_session_attrs=any")
	if err != nil {
		return nil, fmt.Errorf("make a connection's settings: %w", err)
	}
	c.Host, c.Port, c.Database, c.User, c.Password = s.Host, s.Port, database, user, password
	c.Fallbacks, c.ConnectTimeout = nil, s.timeout
	c.TLSConfig, err = s.tls()
	if err != nil {
		return nil, err
	}
	ms := strconv.FormatInt(s.timeout.Milliseconds(), 10)
	c.RuntimeParams = map[string]string{"application_name": "airlock-revoker-postgres", "statement_timeout": ms, "lock_timeout": ms}
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

func (s *settings) tls() (*tls.Config, error) {
	if s.SSLMode == "disable" || strings.HasPrefix(s.Host, "/") {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.Host}
	if s.ca != nil {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(s.ca) {
			return nil, errors.New("ca_file holds no certificate in PEM")
		}
	}
	switch s.SSLMode {
	case "require":
		c.InsecureSkipVerify = true //nolint:gosec // the operator has said insecure, or it is this machine
	case "verify-ca":
		roots := c.RootCAs
		c.InsecureSkipVerify = true //nolint:gosec // the chain is checked below, only the name is not
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, cert := range cs.PeerCertificates[1:] {
				o.Intermediates.AddCert(cert)
			}
			_, err := cs.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return c, nil
}

// closing closes a connection without waiting long for the server's goodbye.
func closing(conn *pgx.Conn, s *settings) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// sqlState is the server's code of an error; empty when the server did not say
// it.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// retryable says whether trying again may help: the server is away or busy, is
// starting or stopping, is a standby for now, or somebody holds a lock.
func retryable(err error) bool {
	var permanent *permanentError
	if errors.As(err, &permanent) {
		return false
	}
	code := sqlState(err)
	if code == "" {
		return true // it never answered
	}
	switch {
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "40"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "57"):
		return true // connection, rollback, resources, operator intervention
	case code == "55P03", code == "55006", code == "25006": // lock, object in use, read only
		return true
	}
	return false
}

// permanentError is a failure of the plugin's own that trying again does not
// cure.
type permanentError struct{ why string }

func (e *permanentError) Error() string { return e.why }

// words is an error as an operator reads it. pgx puts host, user and database
// into it, and never a password.
func words(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		s := fmt.Sprintf("%s (SQLSTATE %s)", e.Message, e.Code)
		if e.Detail != "" {
			s += ": " + e.Detail
		}
		return s
	}
	return err.Error()
}
