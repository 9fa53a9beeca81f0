package check

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/dots/endpoint"
	"correlator/internal/host/safedir"
	"correlator/internal/host/sockfile"
	"correlator/internal/operate/metrics"
)

// agentRuns reports whether an agent serves the admin socket. An address in use is only Degraded then:
// that agent probably uses it.
func (m *machine) agentRuns() bool {
	return m.config.AdminSocket != "" && errors.Is(m.admin(), sockfile.ErrInUse)
}

func inUse(what string) finding {
	return finding{Degraded, what + " is in use, probably by the agent that runs here",
		"run does not start beside another agent",
		"stop that agent first"}
}

// bound is the finding about a socket or an address, by the error of binding it.
func (m *machine) bound(what string, err error, loss string) finding {
	switch {
	case err == nil:
		return ok(what + " can be bound")
	case (errors.Is(err, sockfile.ErrInUse) || errors.Is(err, unix.EADDRINUSE)) && m.agentRuns():
		return inUse(what)
	}
	return unusablePath(err, loss, listenRemedy(err))
}

func adminSocket(m *machine) finding {
	return m.bound(m.config.AdminSocket, m.admin(), "`correlator status` cannot ask the agent")
}

// unusablePath is the finding about a path at which nothing can be created.
func unusablePath(err error, loss, remedy string) finding {
	if unsafe := (*safedir.UnsafeError)(nil); errors.As(err, &unsafe) {
		return finding{Missing, unsafe.Problem, loss, unsafe.Remedy}
	}
	return finding{Missing, err.Error(), loss, remedy}
}

// socketRemedy returns what to do about a socket that cannot be bound.
func socketRemedy(err error) string {
	switch {
	case errors.Is(err, sockfile.ErrInUse):
		return "stop the agent that uses it, or name another path"
	case errors.Is(err, sockfile.ErrNotSocket):
		return "remove that file, or name another path"
	case errors.Is(err, unix.ENAMETOOLONG):
		return "name a shorter path"
	}
	if errors.Is(err, os.ErrNotExist) {
		return "create its directory, writable only by this user"
	}
	return "run as the owner of its directory, or name another path"
}

func metricsAddress(m *machine) finding {
	server, err := metrics.Open(m.config.MetricsAddress)
	switch {
	case err == nil:
		server.Close()
		return ok(m.config.MetricsAddress + " can be listened on")
	case errors.Is(err, unix.EADDRINUSE) && m.agentRuns():
		return inUse(m.config.MetricsAddress)
	}
	return finding{Missing, err.Error(), "no metrics are served", "name an address of this host and a free port"}
}

// probeSocket returns why a socket cannot be bound once the admin socket is.
func (m *machine) probeSocket(network, path string) error {
	err := sockfile.Probe(network, path)
	if m.config.AdminSocket != "" && filepath.Dir(path) == filepath.Dir(m.config.AdminSocket) &&
		errors.Is(err, os.ErrNotExist) {
		return m.admin() // creates the directory
	}
	return err
}

func feedSocket(m *machine) finding {
	return m.bound(m.config.FeedSocket, m.probeSocket("unixgram", m.config.FeedSocket), "no samples can be fed")
}

func openCensusSocket(m *machine) finding {
	const loss = "nothing is received of PHP's OpenCensus clients"
	r := &m.config.Export.OpenCensus.Receiver
	if err := r.ProbeGroup(); err != nil {
		return finding{Missing, err.Error(), loss, "name a group of this host in opencensus.socket-group, and add " +
			"CAP_SETGID"}
	}
	return m.bound(r.Socket, m.probeSocket("unix", r.Socket), loss)
}

func liveListen(m *machine, e endpoint.Endpoint) finding {
	return m.bound(e.Address(), m.probeListen(e.Network(), e.Address()),
		"the live view is not served there, and run does not start")
}

// probeListen returns why nothing can listen at a path ("unix"), or at an address of TCP.
func (m *machine) probeListen(network, address string) error {
	if network == "unix" {
		return m.probeSocket(network, address)
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return l.Close()
}

func pinMaps(m *machine) finding {
	err := bpf.ProbePinDir(m.config.PinMaps)
	if err == nil {
		return ok("the table can be pinned in " + m.config.PinMaps)
	}
	if errors.Is(err, unix.EWOULDBLOCK) && m.agentRuns() {
		return inUse(m.config.PinMaps)
	}
	f := unusablePath(err, "the table of targets is not pinned",
		"name a directory of a bpf file system that this user can write to")
	var missing *bpf.MissingError
	switch {
	case errors.As(err, &missing):
		f.detail, f.remedy = "needs "+missing.Feature, missing.Remedy
	case errors.Is(err, unix.EWOULDBLOCK):
		f.remedy = fmt.Sprintf("stop the agent that uses %s, or name another directory", m.config.PinMaps)
	}
	return f
}
