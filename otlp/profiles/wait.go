package profiles

import (
	"encoding/hex"
	"net/netip"

	"correlator/profile"
)

// Keys of attributes of waits: OpenTelemetry's conventions have those of peers, and none of the others. (file.path is
// a whole path.)
const (
	waitKind         = "wait.kind" // profile.WaitKind
	waitPeer         = "network.peer.address"
	waitPort         = "network.peer.port"
	waitPath         = "wait.file.name"
	waitWaker        = "wait.waker" // profile.WakerKind
	wakerThread      = "wait.waker.thread.name"
	wakerThreadID    = "wait.waker.thread.id"
	wakerPID         = "wait.waker.process.pid"
	wakerService     = "wait.waker.service.name"
	wakerTrace       = "wait.waker.trace_id"
	wakerTransaction = "wait.waker.transaction.id"
)

var waitKeys = []string{waitKind, waitPeer, waitPort, waitPath, waitWaker, wakerThread, wakerThreadID, wakerPID,
	wakerService, wakerTrace, wakerTransaction}

// wait returns the index of the set of attributes of a sample that waited.
func (d *dictionary) wait(s *profile.Sample) int32 {
	var indices []int32
	text := func(name, text string) {
		if text != "" {
			indices = append(indices, d.attribute(attribute{key: published, name: name, text: text}))
		}
	}
	number := func(name string, n int) {
		if n > 0 {
			indices = append(indices, d.attribute(attribute{key: named, name: name, number: uint64(n)}))
		}
	}
	w := s.Wait
	text(waitKind, string(w.Kind(s.Resource.PID, s.Stack.Frames)))
	if peer, err := netip.ParseAddrPort(w.Peer); err == nil {
		text(waitPeer, peer.Addr().String())
		number(waitPort, int(peer.Port()))
	}
	text(waitPath, w.Path)
	by := &w.Waker
	if by.Kind != profile.UnknownWaker {
		text(waitWaker, by.Kind.String())
	}
	if by.Kind == profile.ThreadWaker {
		text(wakerThread, by.Thread)
		number(wakerThreadID, by.TID)
		number(wakerPID, by.PID)
		text(wakerService, by.Service)
		if by.HasTrace() {
			text(wakerTrace, hex.EncodeToString(by.TraceID[:]))
		}
		if by.TransactionID != [8]byte{} {
			text(wakerTransaction, hex.EncodeToString(by.TransactionID[:]))
		}
	}
	return d.list(indices)
}
