package keep

import "maps"

// leastShrunk is the size below which a table is not made anew: what it would free is counted with its
// process.
const leastShrunk = 64

// table is a map that can be made small again: a map has the memory of the most entries that it ever had.
type table[K comparable, V any] struct {
	all  map[K]V
	most int // entries since it was made
}

func (t *table[K, V]) put(key K, value V) {
	if t.all == nil {
		t.all = make(map[K]V)
	}
	t.all[key] = value
	t.most = max(t.most, len(t.all))
}

// shrink makes the table anew if more than half of it is unused.
func (t *table[K, V]) shrink() {
	if t.most <= leastShrunk || len(t.all) > t.most/2 {
		return
	}
	all := make(map[K]V, len(t.all))
	maps.Copy(all, t.all)
	t.all, t.most = all, len(all)
}
