package broker

import "sync/atomic"

// Counters say what a Broker has done since it was made.
type Counters struct {
	Accepted        uint64 // connections
	Guests          int    // connections that are open
	ReceivedFrames  uint64
	ReceivedBytes   uint64
	SentFrames      uint64 // put into queues, whether or not they were delivered
	SentBytes       uint64 // of these, which are shorter than the JSON that WebSockets get
	DiscardedBytes  uint64 // of these, bytes that were in queues of connections that ended
	UndecodedBytes  uint64 // received and not handled, since the connection ended
	IgnoredMessages uint64 // messages without effect: filters that are invalid, kill, echo replies
	Unencodable     uint64 // objects that are too long as JSON, and that a WebSocket did not get
	UnsetNumbers    uint64 // floats that are no number, and that a browser got as null
	ForeignHosts    uint64 // HTTP requests to a loopback address for another host, refused
	RefusedUpgrades uint64 // HTTP requests that were no WebSocket of this protocol, or of another origin
	Handshakes      int    // connections that are no guests yet, those that read the page included
	EndedHandshakes uint64 // refused, or closed for others, as there were too many of these
	TypeConflicts   uint64 // descriptions that differ from what is known
	Types           int
	Objects         int // cached
	CacheBytes      int // their memory
	QueuedBytes     int // that guests use: in queues, unfinished frames, replays, groups and filters
	Closed          map[Reason]uint64
}

// counters are what is counted outside of the lock, or read there.
type counters struct {
	accepted, discarded, undecoded, ignored, conflicts, replayed, unencodable atomic.Uint64
	unsetNumbers                                                              atomic.Uint64
	foreignHosts, refusedUpgrades                                             atomic.Uint64
	closed                                                                    [numReasons]atomic.Uint64
}

// Counters returns the present counters.
func (b *Broker) Counters() Counters {
	b.mu.Lock()
	defer b.mu.Unlock()
	handshakes := b.handshakes.Counts()
	c := Counters{
		Handshakes: handshakes.Open, EndedHandshakes: handshakes.MadeRoom + handshakes.Refused,
		Accepted: b.count.accepted.Load(), Guests: len(b.guests),
		ReceivedFrames: b.receivedFrames, ReceivedBytes: b.receivedBytes,
		SentFrames: b.sentFrames, SentBytes: b.sentBytes + b.count.replayed.Load(),
		DiscardedBytes: b.count.discarded.Load(), UndecodedBytes: b.count.undecoded.Load(),
		IgnoredMessages: b.count.ignored.Load(),
		ForeignHosts:    b.count.foreignHosts.Load(), RefusedUpgrades: b.count.refusedUpgrades.Load(),
		UnsetNumbers: b.count.unsetNumbers.Load(),
		Unencodable:  b.count.unencodable.Load(), TypeConflicts: b.count.conflicts.Load(),
		Types: b.userTypes, Objects: b.objects, CacheBytes: b.cacheBytes,
		QueuedBytes: int(b.memory.Load()), Closed: map[Reason]uint64{},
	}
	for r := range b.count.closed {
		if n := b.count.closed[r].Load(); n > 0 {
			c.Closed[Reason(r)] = n
		}
	}
	return c
}
