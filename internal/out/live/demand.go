package live

import (
	"slices"
	"sync"

	"correlator/dots/client"
	"correlator/dots/schema"
	"correlator/dots/system"
)

// demand is what the guests of a broker that runs elsewhere have joined, as far as it says so: our
// broker lists the groups of each guest in its DotsClient, others do not. There everything is wanted.
type demand struct {
	changed func()

	mu     sync.Mutex
	listed bool                // the broker lists groups
	groups map[uint32][]string // by client id
}

// follow joins DotsClient, before the client connects.
func (d *demand) follow(c *client.Client) error {
	_, err := client.Subscribe(c, func(e *client.Event[*system.DotsClient]) { d.note(e) })
	return err
}

func (d *demand) note(e *client.Event[*system.DotsClient]) {
	record := e.Updated
	id := record.ID.Value()
	d.mu.Lock()
	if d.groups == nil {
		d.groups = make(map[uint32][]string)
	}
	if e.Operation == client.Remove || record.ConnectionState.Value() == system.DotsConnectionStateClosed {
		delete(d.groups, id)
	} else if groups, ok := record.SubscribedTypes.Get(); ok {
		d.listed = true
		d.groups[id] = slices.Clone(groups)
	}
	d.mu.Unlock()
	d.changed()
}

// wants reports whether a guest has joined a type, or may have.
func (d *demand) wants(s *schema.Struct) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.listed {
		return true
	}
	for _, groups := range d.groups {
		if slices.Contains(groups, s.Name) {
			return true
		}
	}
	return false
}
