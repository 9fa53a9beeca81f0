package broker

import (
	"maps"
	"slices"

	"correlator/dots/cbor"
	"correlator/dots/system"
	"correlator/dots/value"
)

// reportType is the type of the objects that say what guests send and receive.
const reportType = "DotsClientStatistics"

// reportSeconds is how often they are published, as by the Rust implementation.
const reportSeconds = 5

// traffic is what a guest has sent, and what was queued for it.
type traffic struct {
	receivedFrames, receivedBytes uint64
	sentFrames, sentBytes         uint64 // without the bytes of replays
	peak                          uint64 // bytes that were queued at a time
}

// report is what is published of a guest.
type report struct {
	traffic
	waits, queued uint64
	overflow      bool
}

// reportOf returns what is to be published of a guest. The broker is locked.
func reportOf(g *guest) report {
	r := report{traffic: g.traffic, waits: g.waits.Load(), queued: uint64(max(g.queued.Load(), 0)),
		overflow: g.reason == SlowConsumer || g.reason == MemoryFull}
	r.sentBytes += g.replayed.Load()
	return r
}

// publishReports publishes the statistics of all guests for which they have changed, if somebody
// wants them, and otherwise forgets them.
func (b *Broker) publishReports() {
	b.lock()
	t := b.topics[reportType]
	if t.size() == 0 {
		b.removeReports(func(uint32) bool { return true })
		b.unlock(nil)
		return
	}
	var writers []*guest
	for _, id := range slices.Sorted(maps.Keys(b.guests)) {
		if g := b.guests[id]; g != nil && !g.left {
			b.publishReport(g)
		}
		if b.batch.work > maxWork {
			writers = b.unlock(writers)
			b.lock()
		}
	}
	b.unlock(writers)
}

// publishReport publishes the statistics of a guest that has a record, if they have changed. That it
// gets them itself is a change. The number of frames that are queued is not known, as the queue has
// bytes.
func (b *Broker) publishReport(g *guest) {
	t := b.topics[reportType]
	r := reportOf(g)
	if !g.recorded || t.size() == 0 || g.reported != nil && r == *g.reported {
		return
	}
	g.reported = &r
	x := system.DotsClientStatistics{
		ClientID:             value.Some(g.id),
		Sent:                 value.Some(packages(r.sentBytes, r.sentFrames)),
		Received:             value.Some(packages(r.receivedBytes, r.receivedFrames)),
		DrainerWakeups:       value.Some(r.waits),
		PeakQueuedBytes:      value.Some(r.peak),
		CurrentQueuedBytes:   value.Some(r.queued),
		OverflowDisconnected: value.Some(r.overflow),
	}
	_ = b.publishOwn(t, x.Valid(), false, x.AppendInstance(nil, x.Valid()))
}

// removeReports removes the statistics of some guests. The broker is locked.
func (b *Broker) removeReports(gone func(id uint32) bool) {
	t := b.topics[reportType]
	for _, o := range slices.Clone(t.container.inOrder()) {
		var x system.DotsClientStatistics
		r := cbor.NewReader(o.now.data)
		x.DecodeInstance(&r)
		if id := x.ClientID.Value(); o.createdFrom == ownID && gone(id) {
			if g := b.guests[id]; g != nil {
				g.reported = nil
			}
			b.removeOwn(t, o)
		}
	}
}
