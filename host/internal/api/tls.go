package api

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/airlock-host/airlock/config"
)

// Certificates are the files of a tls block, read.
type Certificates struct {
	cert    tls.Certificate
	clients *x509.CertPool // nil: clients need none
}

// LoadCertificates reads the files of a tls block.
func LoadCertificates(c *config.TLS) (*Certificates, error) {
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls: cert_file %s, key_file %s: %w", c.CertFile, c.KeyFile, err)
	}
	if c.ClientCAFile == "" {
		return &Certificates{cert: cert}, nil
	}
	pem, err := os.ReadFile(c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("tls: client_ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: client_ca_file %s has no certificate in it", c.ClientCAFile)
	}
	return &Certificates{cert: cert, clients: pool}, nil
}

// TLSConfig is the listeners' configuration. current is asked at every
// handshake, so that renewed certificates count after a reload.
func TLSConfig(current func() *Certificates) *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := current()
		t := &tls.Config{Certificates: []tls.Certificate{c.cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
		if c.clients != nil {
			t.ClientCAs, t.ClientAuth = c.clients, tls.RequireAndVerifyClientCert
		}
		return t, nil
	}
	return base
}
