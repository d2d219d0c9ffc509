package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = a.newKey()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.crt", "CERTIFICATE", der)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// sign makes a certificate and its key.
func (a *authority) sign(name string, serial int64) (certFile, keyFile string) {
	a.t.Helper()
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", raw)
}

// client trusts the authority and shows a certificate, if it has one.
func (a *authority) client(certs ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS12}
}

// get asks for /livez over a new connection and gives the server's serial.
func get(t *testing.T, url string, c *tls.Config) (status int, serial int64, err error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: 30 * time.Second}).Get(url)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.TLS != nil {
		serial = resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	return resp.StatusCode, serial, nil
}

func TestListenersOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.sign("server", 7)
	block := &config.TLS{CertFile: cert, KeyFile: key}
	load := func() *api.Certificates {
		c, err := api.LoadCertificates(block)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var current atomic.Pointer[api.Certificates]
	current.Store(load())
	h := apitest.New(t)
	rest, ws := listener(t), listener(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- h.Server.Serve(ctx, api.Listeners{REST: rest, WS: ws, TLS: api.TLSConfig(current.Load)}, time.Second)
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	url := "https://" + rest.Addr().String() + "/livez"

	if status, serial, err := get(t, url, ca.client()); err != nil || status != 200 || serial != 7 {
		t.Errorf("over TLS: %d %d %v", status, serial, err)
	}
	if status, _, err := get(t, "http://"+rest.Addr().String()+"/livez", nil); err == nil && status < 400 {
		t.Errorf("in the clear: %d", status)
	}
	if _, _, err := get(t, url, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		t.Error("a certificate of nobody is taken")
	}
	old := ca.client()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 //nolint:gosec // that it is refused is the test
	if _, _, err := get(t, url, old); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	d := websocket.Dialer{TLSClientConfig: ca.client()}
	conn, resp, err := d.Dial("wss://"+ws.Addr().String()+"/ws/events", http.Header{"Authorization": {"Bearer " + apitest.AliceToken}})
	if err != nil {
		t.Errorf("WebSocket over TLS: %v %v", err, resp)
	} else {
		_ = conn.Close()
	}

	// A renewed certificate is shown to the next connection.
	block.CertFile, block.KeyFile = ca.sign("server", 8)
	current.Store(load())
	if status, serial, err := get(t, url, ca.client()); err != nil || status != 200 || serial != 8 {
		t.Errorf("after the renewal: %d %d %v", status, serial, err)
	}

	// From now on clients need one of their own.
	block.ClientCAFile = filepath.Join(ca.dir, "ca.crt")
	current.Store(load())
	if _, _, err := get(t, url, ca.client()); err == nil {
		t.Error("a client without a certificate is let in")
	}
	pair := func(a *authority) tls.Certificate {
		c, err := tls.LoadX509KeyPair(a.sign("client", 9))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if status, _, err := get(t, url, ca.client(pair(ca))); err != nil || status != 200 {
		t.Errorf("with a certificate: %d %v", status, err)
	}
	if _, _, err := get(t, url, ca.client(pair(newAuthority(t)))); err == nil {
		t.Error("a certificate of another authority is taken")
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCertificatesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.sign("server", 7)
	_, other := ca.sign("other", 8)
	for name, block := range map[string]*config.TLS{
		"none":        {CertFile: "/none", KeyFile: key},
		"another key": {CertFile: cert, KeyFile: other},
		"no CA in it": {CertFile: cert, KeyFile: key, ClientCAFile: key},
	} {
		if _, err := api.LoadCertificates(block); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
