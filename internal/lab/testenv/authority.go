package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Authority issues certificates, in files that are removed after the test. Its own is
// authority.pem.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority creates an authority that nobody trusts yet.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("authority", &x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// File returns the path of a file, whether it exists or not.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Pool returns a pool with only this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue writes NAME.pem and NAME.key, for a client, or a server at 127.0.0.1, replacing existing
// files.
func (a *Authority) Issue(name string) {
	a.t.Helper()
	a.IssueAs(name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// IssueAs is Issue with a template for the certificate, which by default is valid from three days
// ago until an hour from now.
func (a *Authority) IssueAs(name string, c *x509.Certificate) {
	a.t.Helper()
	a.sign(name, c)
}

// Pair reads a pair that Issue has written.
func (a *Authority) Pair(name string) tls.Certificate {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.File(name+".pem"), a.File(name+".key"))
	assert.NilError(a.t, err)
	return pair
}

// sign writes a certificate and its key. The authority's own is self-signed.
func (a *Authority) sign(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NilError(a.t, err)
	c.Subject, c.SerialNumber = pkix.Name{CommonName: name}, big.NewInt(time.Now().UnixNano())
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-72 * time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	c.BasicConstraintsValid = true
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	assert.NilError(a.t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	assert.NilError(a.t, err)
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", pkcs8)
	cert, err := x509.ParseCertificate(der)
	assert.NilError(a.t, err)
	return cert, key
}

func (a *Authority) write(file, kind string, der []byte) {
	a.t.Helper()
	assert.NilError(a.t, os.WriteFile(a.File(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
