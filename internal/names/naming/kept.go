package naming

import (
	"time"

	"correlator/profile"
)

// This file is about how long names are kept, and how many.

const (
	// maxBytes bounds the names of all processes and what is wanted of them, maxKernelBytes the
	// same of the kernel. A JVM with 1000 functions on its stacks takes 150 kB, the functions of
	// the kernel that are ever sampled some 300 kB.
	maxBytes       = 16 << 20
	maxKernelBytes = 1 << 20

	// MemoryBytes is the memory of the Go runtime that a Namer needs: twice what may be in use,
	// since near its limit the garbage collector would run all the time.
	MemoryBytes = 2 * (maxBytes + maxKernelBytes + maxHeld*heldBytes)

	// roomBytes has to be left for something to be asked for: for an answer.
	roomBytes = 64 << 10

	// When there is no room, names that were used last are kept longest, until an eighth is free.
	// Those used within unusedTime are in use: to forget them would be to read them again at once.
	// So they are kept, and others not asked for. But an owner who has less than three quarters of
	// an equal share gets room from the one who has most. Either is tried every evictInterval at
	// most, the latter for each owner.
	unusedTime    = time.Minute
	evictInterval = time.Second

	// mostAge is the age up to which names are told apart.
	mostAge = 10 * time.Minute

	// kernelAge is when names of code that the kernel has compiled are read again.
	kernelAge = time.Minute

	// What an address that is wanted takes in two maps, a file, and a process without either.
	wantedBytes  = 96
	fileBytes    = 384
	processBytes = 1536
)

// memory is what processes share.
type memory struct {
	max, bytes int
	evicted    time.Time // when some was last looked for
}

func (n *Namer) grow(o *owner, bytes int) {
	o.bytes += bytes
	o.memory.bytes += bytes
	n.counters.Bytes.Add(int64(bytes))
}

// makeRoom reports whether there is room for so much more of a process, and makes some if it may.
func (n *Namer) makeRoom(p *process, bytes int, now time.Time) bool {
	m := p.owner.memory
	if m.bytes+bytes > m.max && now.Sub(m.evicted) >= evictInterval {
		m.evicted = now
		n.evictOldest(n.sharing(m), m.bytes+m.max/8-m.max, unusedTime, now)
	}
	if o := p.owner; m.bytes+bytes > m.max && now.Sub(o.evicted) >= evictInterval {
		o.evicted = now
		n.evictMost(p, now)
	}
	return m.bytes+bytes <= m.max
}

// evictMost makes room for a process whose owner has less than a share, from the owner who has most.
func (n *Namer) evictMost(p *process, now time.Time) {
	m := p.owner.memory
	free := m.max / 8
	if p == n.kernel {
		return
	}
	share := m.max / len(n.owners)
	most := p.owner
	for _, o := range n.owners {
		if o.bytes > most.bytes {
			most = o
		}
	}
	if p.owner.bytes > share/4*3 || most.bytes <= share {
		return
	}
	excess := min(most.bytes-share, free)
	left := excess - n.evictOldest(map[string]*owner{"": most}, excess, 0, now)
	for _, p := range n.processes {
		if left <= 0 {
			return
		}
		if p.owner == most {
			left -= n.dropWanted(p)
		}
	}
}

// evictOldest forgets the names of some owners that were not used for the longest time, and for
// a time at least, until so many bytes are free. It returns how many it has freed.
func (n *Namer) evictOldest(owners map[string]*owner, bytes int, unused time.Duration, now time.Time) (freed int) {
	seconds := n.seconds(now)
	ageOf := func(name *named) uint32 { return min(seconds-min(name.used, seconds), uint32(mostAge/time.Second)) }
	var byAge [mostAge/time.Second + 1]int
	for _, o := range owners {
		for f := range o.names {
			for i := range f.ranges {
				byAge[ageOf(&f.ranges[i])] += f.ranges[i].bytes()
			}
		}
	}
	// Of the youngest that have to go, only so many do.
	youngest, left := uint32(len(byAge)), bytes
	for youngest > uint32(unused/time.Second) && left > 0 {
		youngest--
		left -= byAge[youngest]
	}
	spare := max(0, -left)
	for _, o := range owners {
		for f := range o.names {
			evicted, count := f.ranges.deleteFunc(func(name *named) bool {
				age := ageOf(name)
				if age == youngest && spare >= name.bytes() {
					spare -= name.bytes()
					return false
				}
				return age >= youngest
			})
			n.grow(o, -evicted)
			n.counters.Evicted.Add(uint64(count))
			freed += evicted
		}
	}
	return freed
}

// sharing returns the owners that share a memory.
func (n *Namer) sharing(m *memory) map[string]*owner {
	if m == n.kernel.owner.memory {
		return map[string]*owner{"": n.kernel.owner}
	}
	return n.owners
}

// dropWanted forgets what is wanted of a process, unless a request for it is under way. It returns
// the memory that it has freed.
func (n *Namer) dropWanted(p *process) (freed int) {
	freed = wantedBytes * len(p.wanted)
	p.wanted = make(map[address]struct{})
	if !p.asking || p.gone {
		freed += wantedBytes * len(p.taken)
		p.taken = make(map[address]struct{})
	}
	n.grow(p.owner, -freed)
	return freed
}

// forget forgets processes that were not sampled for long, and when names of code that the kernel
// has compiled are too old.
func (n *Namer) forget(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	crowded, idle := n.memory.bytes > n.memory.max/8*7, idleTime
	if crowded {
		idle = crowdedIdleTime
	}
	for resource, p := range n.processes {
		if now.Sub(p.used) < idle || p.asking || len(p.held) > 0 {
			n.forgetFiles(p, crowded, now)
			continue
		}
		n.drop(p)
		if p.next.After(now) && !p.gone && p.pause > 0 { // else it would be asked again, too early
			continue
		}
		n.grow(p.owner, -processBytes)
		delete(n.processes, resource)
		p.owner.processes--
	}
	for name, o := range n.owners {
		if o.processes == 0 && !o.turn.next.After(now) && !o.turn.isSuspect(now) {
			delete(n.owners, name)
		}
	}
	if now.Sub(n.aged) > kernelAge {
		n.aged = now
		if code := n.kernel.files[codeID]; code != nil {
			code.version++
		}
	}
}

// forgetFiles forgets files of which no names are left, also those that could not be read if it is
// crowded: a process can map one after the other.
func (n *Namer) forgetFiles(p *process, crowded bool, now time.Time) {
	for id, f := range p.files {
		if len(f.ranges) == 0 && (crowded || f.retry.Before(now)) {
			n.forgetFile(p, id)
		}
	}
}

// drop forgets all that is known and wanted of a process, but when it may be asked.
func (n *Namer) drop(p *process) {
	n.dropWanted(p)
	delete(p.owner.waiting, p)
	for id := range p.files {
		n.forgetFile(p, id)
	}
	p.files, p.look = make(map[profile.FileID]*file), false
}

func (n *Namer) forgetFile(p *process, id profile.FileID) {
	n.leave(p.owner, p.files[id].names)
	delete(p.files, id)
	n.grow(p.owner, -fileBytes)
}
