package check

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// checkPEM returns why PEM files cannot be used: a certificate with its key, and authorities. Empty
// names are skipped.
func checkPEM(certificate, key, authorities string) error {
	if certificate != "" {
		if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
			return fmt.Errorf("reading %s and %s: %w", certificate, key, err)
		}
	}
	if authorities == "" {
		return nil
	}
	text, err := os.ReadFile(authorities)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = errors.New("no certificate in it")
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", authorities, err)
	}
	return nil
}

// renewalTime returns how long before its end a certificate should have been replaced: a day, or a
// tenth of its validity if that is shorter.
func renewalTime(c *x509.Certificate) time.Duration {
	return min(24*time.Hour, c.NotAfter.Sub(c.NotBefore)/10)
}

// expiry returns a finding if a certificate of the correlator has expired or will soon. The file
// names may be empty.
func expiry(certificate, key, loss string) (f finding, found bool) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return f, false
	}
	const remedy = "replace the certificate: a new one is read without a restart"
	end := pair.Leaf.NotAfter
	switch left := time.Until(end); {
	case left > renewalTime(pair.Leaf):
		return f, false
	case left > 0:
		return finding{Degraded, fmt.Sprintf("%s expires in %v", certificate, left.Round(time.Minute)), "soon " + loss,
			remedy}, true
	}
	return finding{Degraded, fmt.Sprintf("%s expired on %s", certificate, end.Format(time.DateOnly)), loss,
		remedy}, true
}
