package broker

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/system"
	"correlator/dots/value"
)

// stored returns how many reports are cached.
func stored(b *Broker) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.topics[reportType].container.objects)
}

// joinReports has a guest join or leave the group of the reports.
func joinReports(t *testing.T, g *guest, event system.DotsMemberEvent) {
	t.Helper()
	m := system.DotsMember{GroupName: value.Some(reportType), Event: value.Some(event)}
	data, err := frame.Append(nil, frame.V2, &frame.Header{TypeName: []byte("DotsMember"), Set: frame.TypeName},
		true, 1, m.AppendInstance(nil, m.Valid()))
	if err == nil {
		_, err = g.data(data)
	}
	assert.NilError(t, err)
}

// TestReports: the statistics of guests are what they have sent and received, are published only
// while somebody wants them and when they have changed, and go with their guests.
func TestReports(t *testing.T) {
	b := newBroker(t, Options{})
	addr := listenUnix(t, b, frame.V2)
	p := connect(t, addr, frame.V2)
	p.barrier()
	b.publishReports()
	assert.Check(t, stored(b) == 0, "published for nobody")
	watcher, s := connectSink(t, b) // which no tick of the clock writes to unnoticed
	join := func(event system.DotsMemberEvent) {
		t.Helper()
		joinReports(t, watcher, event)
	}
	join(system.DotsMemberEventJoin)
	reports := func(id uint32) (all []system.DotsClientStatistics) {
		t.Helper()
		for _, r := range s.frames(t) {
			var x system.DotsClientStatistics
			if r.name != reportType || r.RemoveObj {
				continue
			}
			if decodeInto(t, r.instance, x.DecodeInstance); x.ClientID.Value() == id {
				all = append(all, x)
			}
		}
		return all
	}
	eventually(t, "written", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.guests[p.id].queued.Load() == 0
	})
	b.publishReports()
	b.publishReports() // nothing has changed
	all := reports(p.id)
	assert.Assert(t, len(all) == 1, "%d reports", len(all))
	sent, received := all[0].Sent.Value(), all[0].Received.Value()
	// Hello, DotsMsgConnectResponse and DotsEcho; DotsMsgConnect and DotsEcho.
	if sent.Packages.Value() != 3 || received.Packages.Value() != 2 || sent.Bytes.Value() == 0 ||
		received.Bytes.Value() == 0 || all[0].CurrentQueuedBytes.Value() != 0 ||
		all[0].PeakQueuedBytes.Value() == 0 || all[0].OverflowDisconnected.Value() {
		t.Errorf("%+v", all[0])
	}

	p.conn.Close()
	gone(t, b, p.id)
	if all = reports(p.id); len(all) != 1 { // nothing has changed since
		t.Errorf("%d reports after the end", len(all))
	}
	before := stored(b)
	b.sweep()
	n := stored(b)
	assert.Check(t, n == before-1, "%d reports, then %d", before, n)
	join(system.DotsMemberEventLeave)
	b.publishReports()
	assert.Check(t, stored(b) == 0, "kept for nobody")
}

// TestNoReportBeforeAcceptance: a connection that may be nobody's is told to nobody.
func TestNoReportBeforeAcceptance(t *testing.T) {
	b := newBroker(t, Options{Auth: Auth{Secret: "secret"}})
	watcher, _ := connectSink(t, b)
	joinReports(t, watcher, system.DotsMemberEventJoin)
	silent, _ := connectSink(t, b)
	silent.state = connecting
	b.publishReports()
	disconnect(b, silent)
	n := stored(b)
	assert.Check(t, n == 0, "%d reports", n)
}

// TestReportOfSlowConsumer: the last report of a guest says that it was too slow.
func TestReportOfSlowConsumer(t *testing.T) {
	b := newBroker(t, Options{Limits: Limits{Queue: 64 << 10}})
	addr := listenUnix(t, b, frame.V2)
	watcher := connect(t, addr, frame.V2)
	watcher.join(reportType)
	watcher.expect("DotsCacheInfo")
	slow := connect(t, addr, frame.V2)
	slow.describe((&demo.DemoThing{}).Descriptor())
	slow.join("DemoThing")
	slow.expect("DotsCacheInfo")
	p := connect(t, addr, frame.V2)
	p.describe((&demo.DemoThing{}).Descriptor())
	for id := uint32(0); b.Members("DemoThing") > 0; id++ {
		p.send(&demo.DemoThing{ID: value.Some(id % 10), Name: value.Some(string(make([]byte, 8<<10)))})
		p.barrier()
	}
	for {
		var x system.DotsClientStatistics
		decodeInto(t, watcher.expect(reportType).instance, x.DecodeInstance)
		if x.ClientID.Value() == slow.id && x.OverflowDisconnected.Value() {
			if x.PeakQueuedBytes.Value() < 64<<10 || x.DrainerWakeups.Value() == 0 {
				t.Errorf("%+v", x)
			}
			return
		}
	}
}
