package broker

import (
	"slices"
	"syscall"
	"time"

	"correlator/dots/cbor"
	"correlator/dots/system"
	"correlator/dots/value"
)

// sweep removes the DotsClient of guests that are gone and that no cached object names, and the
// statistics of all that are gone.
func (b *Broker) sweep() {
	b.lock()
	defer b.unlock(nil)
	t := b.topics[recordType]
	for _, o := range slices.Clone(t.container.inOrder()) {
		var x system.DotsClient
		r := cbor.NewReader(o.now.data)
		x.DecodeInstance(&r)
		id := x.ID.Value()
		if g := b.guests[id]; (g == nil || g.left) && b.refs[id] == 0 && id != ownID {
			b.removeOwn(t, o)
		}
	}
	b.removeReports(func(id uint32) bool {
		g := b.guests[id]
		return g == nil || g.left
	})
}

// statistics is what is compared to find out whether the status has changed.
type statistics struct {
	receivedFrames, receivedBytes, sentFrames, sentBytes uint64
	types, cacheBytes                                    int
}

func (b *Broker) statistics() statistics {
	return statistics{b.receivedFrames, b.receivedBytes, b.sentFrames,
		b.sentBytes + b.count.replayed.Load(), b.userTypes, b.cacheBytes}
}

// publishStatus publishes DotsDaemonStatus if somebody wants it and it has changed otherwise than
// by being published. The broker is locked.
func (b *Broker) publishStatus() {
	t := b.topics["DotsDaemonStatus"]
	now := b.statistics()
	if t.size() == 0 || now == b.status {
		return
	}
	x := system.DotsDaemonStatus{
		ServerName: value.Some(b.options.Name), StartTime: value.Some(value.TimepointOf(b.started)),
		Received: value.Some(packages(now.receivedBytes, now.receivedFrames)),
		Sent:     value.Some(packages(now.sentBytes, now.sentFrames)),
		Cache: value.Some(system.DotsCacheStatus{
			NrTypes: value.Some(uint32(now.types)), Size: value.Some(uint64(now.cacheBytes)),
		}),
		ResourceUsage: value.Some(resourceUsage()),
	}
	_ = b.publishOwn(t, x.Valid(), false, x.AppendInstance(nil, x.Valid()))
	b.status = b.statistics()
}

func packages(bytes, frames uint64) system.DotsStatistics {
	return system.DotsStatistics{Bytes: value.Some(bytes), Packages: value.Some(frames)}
}

// resourceUsage returns what this process uses.
func resourceUsage() (x system.DotsResourceUsage) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return x
	}
	x.MinorFaults.Set(int32(u.Minflt))
	x.MajorFaults.Set(int32(u.Majflt))
	x.InBlock.Set(int32(u.Inblock))
	x.OutBlock.Set(int32(u.Oublock))
	x.NrSignals.Set(int32(u.Nsignals))
	x.NrSwaps.Set(int32(u.Nswap))
	x.NrVoluntaryContextSwitches.Set(int32(u.Nvcsw))
	x.NrInvoluntaryContextSwitches.Set(int32(u.Nivcsw))
	x.MaxRss.Set(int32(u.Maxrss))
	x.UserCPUTime.Set(value.DurationOf(time.Duration(u.Utime.Nano())))
	x.SystemCPUTime.Set(value.DurationOf(time.Duration(u.Stime.Nano())))
	return x
}
