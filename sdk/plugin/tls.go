package plugin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"time"
)

// ClientCertEnv is the environment variable in which a host hands its
// certificate to a plugin (go-plugin's AutoMTLS).
const ClientCertEnv = "PLUGIN_CLIENT_CERT"

// NewCertificate makes a key and a self-signed certificate for one side of one
// plugin connection. It speaks go-plugin's AutoMTLS on the wire; go-plugin's
// own keys are P-521, which costs a plugin's start more than all the rest.
func NewCertificate() (cert tls.Certificate, certPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "localhost", Organization: []string{"Airlock"}},
		DNSNames:     []string{"localhost"},
		// Both sides were made a moment ago, and only they hold the keys: the
		// dates say nothing, and a clock that steps must not matter.
		NotBefore:             now.Add(-48 * time.Hour),
		NotAfter:              now.AddDate(30, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, certPEM, nil
}

// serverTLS is the plugin's side of the connection: only the host whose
// certificate came in the environment gets through. field is what goes into
// the handshake line.
func serverTLS(hostPEM string) (config *tls.Config, field string, err error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(hostPEM)) {
		return nil, "", errors.New("the host's certificate cannot be read")
	}
	cert, _, err := NewCertificate()
	if err != nil {
		return nil, "", err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		RootCAs:      pool,
		ServerName:   "localhost",
		MinVersion:   tls.VersionTLS13,
	}, base64.RawStdEncoding.EncodeToString(cert.Certificate[0]), nil
}
