package dotstool

import (
	"strings"
	"sync"

	"correlator/dots/client"
	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/internal/host/sorting"
)

// maxLast is how many keys of an uncached type are kept. Such a type may have ever new ones.
const maxLast = 1000

// row is an object of a table.
type row struct{ key, instance string }

// rows are the objects of a type: those in the client's container, or, of an uncached type, the last
// one of each key.
type rows struct {
	s       *schema.Struct
	objects *client.Subscription[client.Raw, string] // nil until the type is subscribed to

	mu      sync.Mutex
	last    map[string]string // of an uncached type: instances by key
	dropped int               // transmissions with further keys
}

// add notes a transmission of an uncached type.
func (r *rows) add(x *client.Raw) {
	var layout dynamic.Layout
	if _, err := dynamic.Scan(r.s, x.Instance, &layout); err != nil {
		return // the client has checked it
	}
	key := string(dynamic.AppendKey(nil, r.s, x.Instance, &layout))
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.last[key]; !known && len(r.last) >= maxLast {
		r.dropped++
		return
	}
	r.last[key] = string(x.Instance)
}

// first returns the objects with the lowest keys in order, as many as are wanted, how many more there
// are, and how many transmissions are not among them.
func (r *rows) first(wanted int) (first []row, more, dropped int) {
	count := 0
	add := func(key, instance string) {
		count++
		if first = append(first, row{key, instance}); len(first) == 2*wanted {
			first = lowest(first, wanted)
		}
	}
	if r.s.Flags.Cached && r.objects != nil {
		for key, x := range r.objects.All() {
			add(key, string(x.Instance))
		}
	}
	r.mu.Lock()
	for key, instance := range r.last {
		add(key, instance)
	}
	dropped = r.dropped
	r.mu.Unlock()
	first = lowest(first, wanted)
	return first, count - len(first), dropped
}

// lowest sorts rows, and returns the first ones.
func lowest(rows []row, wanted int) []row {
	sorting.Sort(rows, func(a, b row) int { return strings.Compare(a.key, b.key) })
	return rows[:min(len(rows), wanted)]
}
