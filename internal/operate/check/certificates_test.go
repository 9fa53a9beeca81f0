package check

import (
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/otlp"
)

// Files that are of no use keep run from starting; a certificate that has expired does not.
func TestDestinationFiles(t *testing.T) {
	a := newAuthority(t)
	a.IssueAs("good", &x509.Certificate{NotAfter: time.Now().Add(time.Hour * 48)})
	a.IssueAs("soon", &x509.Certificate{NotAfter: time.Now().Add(time.Hour)})
	a.IssueAs("expired", &x509.Certificate{NotAfter: time.Now().Add(-time.Hour)})
	a.IssueAs("hours", &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)})
	a.join("both", "soon.key", "soon.pem")
	for _, c := range []struct {
		name, endpoint, authorities, certificate, key string
		status                                        Status
		detail                                        string
	}{
		{"all", "https://h", "authority.pem", "good.pem", "good.key", OK, "not tried"},
		{"no PEM", "https://h", "good.key", "", "", Missing, "no certificate in it"},
		{"no file", "https://h", "none", "", "", Missing, "no such file"},
		{"another's key", "https://h", "", "good.pem", "authority.key", Missing, "private key does not match"},
		{"soon", "https://h", "", "soon.pem", "soon.key", Degraded, "expires in"},
		{"expired", "https://h", "", "expired.pem", "expired.key", Degraded, "expired on"},
		{"made for hours", "https://h", "", "hours.pem", "hours.key", OK, "not tried"},
		{"key and certificate in one file", "https://h", "", "both", "both", Degraded, "expires in"},
		{"not used", "http://h", "good.key", "", "", OK, "not tried"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := func(name string) string {
				if name == "" {
					return ""
				}
				return a.File(name)
			}
			d := otlp.NewDestination(c.endpoint)
			d.Name, d.Certificate = "x", path(c.authorities)
			d.ClientCertificate, d.ClientKey = path(c.certificate), path(c.key)
			m := fakeMachine(t, nil)
			m.config.Export.Destinations = []otlp.Destination{d}
			f := found(t, m, "otlp-destination x")
			f.verify(t, c.status, c.detail, "")
			x, err := otlp.Open(otlp.Options{Destinations: m.config.Export.Destinations})
			if err == nil {
				x.Shutdown(t.Context())
			}
			assert.Check(t, (err == nil) != (f.status == Missing), "found %+v, an exporter %v", f, err)

			if c.certificate == "" || c.key == "" {
				return
			}
			r := &m.config.Export.Receiver
			r.Listen, r.ClientAuthorities = "127.0.0.1:0", d.Certificate
			r.Certificate, r.Key = d.ClientCertificate, d.ClientKey
			if c.status == OK {
				c.detail = "can be bound"
			}
			found(t, m, "otlp-listen").verify(t, c.status, c.detail, "")
		})
	}
}

// A certificate that expires soon does not hide a failed connection.
func TestConnectWithExpiringCertificate(t *testing.T) {
	a := newAuthority(t)
	a.IssueAs("soon", &x509.Certificate{NotAfter: time.Now().Add(time.Hour)})
	d := otlp.NewDestination("https://h")
	d.Name, d.ClientCertificate, d.ClientKey = "x", a.File("soon.pem"), a.File("soon.key")
	m := fakeMachine(t, nil)
	m.config.Export.Destinations, m.config.Connect = []otlp.Destination{d}, true
	for err, want := range map[error]string{nil: "soon.pem expires in",
		errors.New("connection refused"): "; connection refused"} {
		m.connect = func() map[string]error { return map[string]error{"x": err} }
		found(t, m, "otlp-destination x").verify(t, Degraded, want, "replace the certificate")
	}
}
