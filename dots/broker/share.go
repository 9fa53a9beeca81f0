package broker

import (
	"fmt"

	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// What guests share is divided, so that one of them does not take the room of the others: a quarter
// of the cache may be used by the objects that one of them created, and a part of it is only for the
// broker, which keeps records of its guests.
const (
	cacheShares  = 4
	cacheReserve = 16
)

// guestLimit returns how many guests there may be with this one. The last ones are those of Unix sockets,
// whose permissions say who may connect: others who connect as often as they can do not keep them out.
func (b *Broker) guestLimit(g *guest) int {
	if g.ip.IsValid() {
		return b.options.Limits.Guests - b.options.Limits.Reserve
	}
	return b.options.Limits.Guests
}

// crowded refuses a guest for whom there is no place, and says so.
func (b *Broker) crowded(g *guest) error {
	b.reply(g, &system.DotsMsgError{ErrorCode: value.Some(int32(1)),
		ErrorText: value.Some(fmt.Sprintf("this server serves %d guests at most", b.guestLimit(g)))})
	return fail(TooManyGuests, "")
}

// mayCache reports whether there is room for more bytes of a cached object.
func (b *Broker) mayCache(sender, creator uint32, bytes int) bool {
	limit := b.options.Limits.Cache
	if bytes <= 0 {
		return true
	}
	if sender == ownID {
		return b.cacheBytes+bytes <= limit
	}
	return b.cacheBytes+bytes <= limit-limit/cacheReserve &&
		(creator == ownID || b.created[creator]+bytes <= limit/cacheShares)
}

// account counts bytes of a cached object.
func (b *Broker) account(creator uint32, bytes int) {
	if bytes == 0 {
		return // most updates are as long as what they replace
	}
	b.cacheBytes += bytes
	if b.created[creator] += bytes; b.created[creator] <= 0 {
		delete(b.created, creator)
	}
}

// claim notes who updated an object last, if it is removed when that guest leaves.
func (b *Broker) claim(t *topic, o *object) {
	if !t.s.Flags.Cleanup || o.now.from == ownID {
		return
	}
	objects := b.owned[o.now.from]
	if objects == nil {
		objects = map[*object]*topic{}
		b.owned[o.now.from] = objects
	}
	objects[o] = t
}

// disclaim reverses claim.
func (b *Broker) disclaim(t *topic, o *object) {
	if !t.s.Flags.Cleanup {
		return
	}
	objects := b.owned[o.now.from]
	if delete(objects, o); len(objects) == 0 {
		delete(b.owned, o.now.from)
	}
}

// internal reports whether a type is one of the protocol, which guests are not told about.
func (b *Broker) internal(t *schema.Type) bool {
	_, is := b.internals[t.Name]
	return is || t.Struct != nil && t.Struct.Flags.Internal
}
