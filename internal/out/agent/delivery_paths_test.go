package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// Where a process can bind its socket, and what of its own leads there, is served.
func TestDeliverySocketPaths(t *testing.T) {
	const longest = 107 // sun_path less its zero byte
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{PrivateTmp: true}})
	r := run(t)
	p.Registration(1)
	path := filepath.Join(p.Dir, strings.Repeat("s", longest-len(p.Dir)-1))
	p.Republish(path, "")
	p.Registration(2)
	testenv.Poll(t, deadline, "the socket's path in the status", func() bool {
		return r.state(p, process.StateRegistered, "").SocketPath == path
	})
	r.served(p, 1, [16]byte{1})

	// A longer one no process can bind, but have: by another name, to which a link of its own
	// leads.
	short, long := filepath.Join(p.Dir, "short"), filepath.Join(p.Dir, strings.Repeat("l", 200))
	p.Republish(short, "")
	p.Registration(3)
	assert.NilError(t, os.Rename(p.HostPath(short), p.HostPath(long)))
	p.Hostile("socket-symlink", long)
	p.Registration(4)
	r.served(p, 1, [16]byte{2})
	clean(t, p.Quit())
}

// A socket of somebody else's, to which the process may not write, gets nothing though we may.
func TestDeliveryOthersSocket(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{UID: 4711, GID: 4711}})
	r := run(t)
	p.Registration(1)
	context := p.Begin(1)
	var others *net.UnixConn
	instead(t, p, func(path string) (err error) {
		others, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o600)
	})
	defer others.Close()
	r.state(p, process.StateError, process.ReasonSocketDenied.String())
	r.feedContext(p, context, 20)
	testenv.Poll(t, deadline, "samples to have an outcome", func() bool { return r.Counters().FedSamples.Load() == 20 })
	r.swept(3)
	others.SetReadDeadline(time.Now())
	n, err := others.Read(make([]byte, 1))
	assert.Check(t, os.IsTimeout(err), "%d bytes arrived at another's socket, %v", n, err)
	p.RebindSocket()
	p.Registration(2)
	r.served(p, 1, [16]byte{1})
	r.end()
	r.added()
}

// As many receivers that never read as would silence all others if they shared a socket with them.
func TestDeliveryStalledBesideHealthy(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Busy: 1, Transaction: 500 * time.Millisecond})
	all := []*demo.Process{neighbor}
	for range 30 {
		all = append(all, demo.Start(t, demo.Options{Manual: true, NeverRead: true}))
	}
	r := run(t, atRate(997), roomy)
	for _, p := range all {
		r.state(p, process.StateRegistered, "")
	}
	contexts := make(map[*demo.Process]demo.Context)
	for _, p := range all[1:] {
		contexts[p] = p.Begin(0)
	}
	sender, c := r.sender(neighbor), r.Counters()
	before, drains, feeds := sender.Stats().Sent, c.Sampling.Drains.Load(), uint64(0)
	testenv.Poll(t, deadline, "all that never read to be logged, and load meanwhile", func() bool {
		for _, p := range all[1:] {
			r.feedContext(p, contexts[p], 20)
		}
		feeds++
		time.Sleep(r.config.ReportInterval) // load comes at that pace
		logged := r.logs.FilterField(zap.String("reason", process.ReasonSocketFull.String())).Len()
		return logged == len(all)-1 && sender.Stats().Sent > before+1000
	})
	waits, pauses := c.Messages.Waits.Load(), c.Messages.Pauses.Load()
	drains = c.Sampling.Drains.Load() - drains
	t.Logf("%d drains, %d feeds: %d waits for room, %d pauses, %d messages", drains, feeds, waits, pauses,
		c.Messages.Messages.Load())
	neighbor.StopThreads()
	r.end()
	r.alone(all...)
	if most := drains + feeds*uint64(len(all)-1); waits > most || pauses != 0 {
		t.Errorf("%d waits for room, %d pauses: want %d and none at most", waits, pauses, most)
	}
	healthy(t, sender, neighbor.Quit())
	r.sampledAdded()
}
