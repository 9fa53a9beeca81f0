package check

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"correlator/internal/export"
	"correlator/internal/sockfile"
	"correlator/otlp"
)

// This file is about what is exported, and taken, by OTLP. Unless connecting is asked for, only what is on this
// host is looked at.

func otlpChecks(n needs) []check {
	var list []check
	if n.receiver {
		list = append(list, check{"otlp-listen", groupOTLP, true, otlpListen})
	}
	for _, d := range n.destinations {
		// Required is that what it names can be used: the destination itself may be down.
		list = append(list, check{"otlp-destination " + d.Name, groupOTLP, true, func(m *machine) finding { return m.destination(&d) }})
	}
	return list
}

func otlpListen(m *machine) finding {
	const loss = "no OTLP is taken in"
	r := &m.config.Export.Receiver
	if r.Certificate != "" {
		if err := usable(r.Certificate, r.Key, r.ClientAuthorities); err != nil {
			return finding{Missing, err.Error(), loss, "name PEM files that belong together in otlp.listener"}
		}
	}
	err := m.probeListener()
	switch {
	case errors.Is(err, unix.EADDRINUSE) && m.agentRuns(), errors.Is(err, sockfile.ErrInUse) && m.agentRuns():
		return inUse(r.Listen)
	case err != nil:
		return finding{Missing, err.Error(), loss, listenRemedy(err)}
	}
	if f, found := expiry(r.Certificate, r.Key, "clients refuse the connection"); found {
		return f
	}
	return ok(r.Listen + " can be bound")
}

// probeListener says whether the receiver could bind its address.
func (m *machine) probeListener() error {
	listen := m.config.Export.Receiver.Listen
	if path, isPath := export.UnixPath(listen); isPath {
		return m.probeSocket("unix", path)
	}
	listener, err := net.Listen("tcp", listen)
	if err == nil {
		listener.Close()
	}
	return err
}

func listenRemedy(err error) string {
	if of := (*net.OpError)(nil); errors.As(err, &of) && of.Op == "listen" {
		return "name an address of this host and a port that is free"
	}
	return socketRemedy(err)
}

func (m *machine) destination(d *otlp.Destination) finding {
	authorities, certificate := d.Certificate, d.ClientCertificate
	if !d.Secure() {
		authorities, certificate = "", "" // not used
	}
	if err := usable(certificate, d.ClientKey, authorities); err != nil {
		return finding{Missing, err.Error(), "nothing is exported", "name PEM files that belong together, for destination " + d.Name}
	}
	detail := d.Endpoint + "; not tried without --connect"
	var err error
	if m.config.Connect {
		detail, err = d.Endpoint+": connected", m.connect()[d.Name]
	}
	f, old := expiry(certificate, d.ClientKey, "the receiver refuses the connection")
	switch {
	case old && err != nil:
		f.detail += "; " + err.Error()
		return f
	case old:
		return f
	case err != nil:
		return finding{Degraded, err.Error(), "nothing reaches " + d.Name, connectRemedy(err)}
	}
	return ok(detail)
}

// tryDestinations connects to all, side by side.
func (m *machine) tryDestinations() map[string]error {
	var mu sync.Mutex
	var trying sync.WaitGroup
	failed := map[string]error{}
	for _, d := range m.config.Export.Destinations {
		trying.Go(func() {
			err := otlp.TryConnect(context.Background(), d, m.config.Version)
			mu.Lock()
			defer mu.Unlock()
			failed[d.Name] = err
		})
	}
	trying.Wait()
	return failed
}

// connectRemedies are by what the error says: the library that connects tells nothing but texts. The first that
// fits counts.
var connectRemedies = []struct{ text, remedy string }{
	{"no such host", "correct the host's name, or see to it that it can be looked up here (/etc/resolv.conf, DNS)"},
	{"produced zero addresses", "correct the host's name, or see to it that it can be looked up here (/etc/resolv.conf, DNS)"},
	{"lookup ", "see to it that names can be looked up here: /etc/resolv.conf, and a way to the DNS server"},
	{"connection refused", "start the receiver, or correct the port: 4317 is usual for OTLP over gRPC"},
	{"no such file or directory", "start the receiver, or correct the socket's path"},
	{"permission denied", "let this user connect to the socket"},
	{"operation not permitted", "allow the connection: a security module or a firewall of this host forbids it"},
	{"network is unreachable", "see to a route to the host, in our network namespace"},
	{"no route to host", "see to a route to the host, in our network namespace"},
	{"unknown authority", "name the file of the authority that signed the receiver's certificate (certificate)"},
	{"has expired or is not yet valid", "have the receiver's certificate replaced, or this host's clock set"},
	{"certificate is valid for", "connect by a name that stands in the receiver's certificate"},
	{"not valid for any names", "connect by a name that stands in the receiver's certificate"},
	{"cannot validate certificate for", "connect by a name that stands in the receiver's certificate"},
	{"certificate required", "name a certificate that the receiver trusts (client-certificate, client-key)"},
	{"bad certificate", "name a certificate that the receiver trusts (client-certificate, client-key)"},
	{"remote error: tls: ", "name another certificate (client-certificate, client-key): the receiver does not trust this one, its log says why"},
	{"does not look like a TLS handshake", "the receiver speaks plain text: say http://, or have it speak TLS"},
	{"failed to verify certificate", "have the receiver's certificate replaced, or name its authority (certificate)"},
	{"server preface", "see whether it is a gRPC port, and speaks TLS: then say https://"},
	// A receiver that refuses our certificate may have gone before we read why.
	{"broken pipe", endedRemedy}, {"connection reset", endedRemedy}, {"EOF", endedRemedy},
	{context.DeadlineExceeded.Error(), "see whether a firewall or a network policy lets this host connect, and whether it is gRPC that answers there"},
}

const endedRemedy = "see the receiver's log: it ended the connection. It may want TLS (https://), or another certificate of us (client-certificate, client-key)"

func connectRemedy(err error) string {
	for _, r := range connectRemedies {
		if strings.Contains(err.Error(), r.text) {
			return r.remedy
		}
	}
	return "see whether the receiver runs, and can be reached from here"
}
