package keep

import "iter"

// leastShrunk is the size that tables are never made smaller than: processBytes counts so much of them.
const leastShrunk = 8

// table is a map that can be made small again: a map has the memory of the most entries that it ever had.
type table[K comparable, V any] struct {
	all  map[K]V
	old  map[K]V // nil, or what shrink has not moved yet
	most int     // entries since it was made
}

func (t *table[K, V]) get(key K) V {
	if value, known := t.all[key]; known {
		return value
	}
	return t.old[key]
}

func (t *table[K, V]) put(key K, value V) {
	if t.all == nil {
		t.all = make(map[K]V)
	}
	t.all[key] = value
	delete(t.old, key)
	t.most = max(t.most, t.len())
}

func (t *table[K, V]) delete(key K) {
	delete(t.all, key)
	delete(t.old, key)
}

func (t *table[K, V]) len() int { return len(t.all) + len(t.old) }

// values yields what there is. What comes and goes meanwhile may be yielded or not.
func (t *table[K, V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, m := range []map[K]V{t.all, t.old} {
			for _, value := range m {
				if !yield(value) {
					return
				}
			}
		}
	}
}

// shrink makes the table anew if more than half of it is unused. Whenever it has moved some entries it calls
// pause, in which all methods but values may be called.
func (t *table[K, V]) shrink(pause func()) {
	if t.most <= leastShrunk || t.len() > t.most/2 {
		return
	}
	t.old, t.all = t.all, make(map[K]V, len(t.all))
	t.most = len(t.old)
	n := 0
	for key, value := range t.old {
		t.all[key] = value
		delete(t.old, key)
		if n++; n%step == 0 {
			pause()
		}
	}
	t.old = nil
}
