package live

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"correlator/dots/endpoint"
)

// maxTrackedBytes is what the bounds of what is tracked come to; of processes, threads and transactions
// 300 bytes each.
const maxTrackedBytes = 300*(maxProcesses+maxRunning+maxWaiting+maxTransactions) + maxStackBytes

// Config says where objects are published.
type Config struct {
	Listen  []string // endpoints of the embedded broker; empty: there is none
	Connect string   // endpoint of a broker that runs; empty: none
	// Untraced also publishes threads that work on no transaction while they run, and stacks of processes.
	Untraced bool
	Secret   string // that guests must know, or that the other broker asks for; empty: none
}

// Enabled reports whether there is anything to do.
func (c *Config) Enabled() bool { return len(c.Listen) > 0 || c.Connect != "" }

// MemoryBytes is the memory of the Go runtime that the live view may take while somebody watches: what is
// tracked, twice, since near its limit the garbage collector would run all the time, and what the embedded
// broker keeps.
func (c *Config) MemoryBytes() int64 {
	switch {
	case !c.Enabled():
		return 0
	case len(c.Listen) == 0:
		return 2 * maxTrackedBytes
	}
	return 2*maxTrackedBytes + maxMemoryBytes
}

// CheckListen returns why the embedded broker must not listen at an endpoint: whoever reaches one that
// is not of this host alone must know a secret, and whoever could see the stacks of all processes.
func (c *Config) CheckListen(uri string) error {
	e, err := endpoint.Parse(uri)
	switch {
	case err != nil:
		return err
	case e.User != "" || e.Secret != "":
		return errors.New("a client name or a secret has no meaning there")
	case e.Network() == "tcp" && c.Secret == "" && !isLoopback(e.Address()):
		return fmt.Errorf("%s can be reached from other hosts, and there is no secret that guests must know "+
			"(--live-secret-file, or %s)", e, endpoint.EnvironmentSecret)
	case e.Network() == "tcp" && c.Secret == "" && c.Untraced:
		return fmt.Errorf("%s can be reached by every user, who would see the stacks of all processes, and there is no "+
			"secret that guests must know (--live-secret-file, or %s)", e, endpoint.EnvironmentSecret)
	}
	return nil
}

// CheckConnect returns why objects cannot be published to a broker. Endpoints are printed, so a secret
// must be elsewhere.
func (c *Config) CheckConnect() error {
	e, err := endpoint.Parse(c.Connect)
	if err == nil && e.Secret != "" {
		return errors.New("the secret belongs in --live-secret-file, or " + endpoint.EnvironmentSecret)
	}
	return err
}

// isLoopback reports whether only processes of this host can connect to HOST:PORT. A name other than
// localhost may have any address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
