package share

import "hash/maphash"

// NewHash returns a hash of keys for a table, each time another one: nobody can choose keys that share a bucket.
func NewHash[K comparable]() func(K) uint32 {
	seed := maphash.MakeSeed()
	return func(key K) uint32 { return uint32(maphash.Comparable(seed, key)) }
}
