package process

import (
	"correlator/memread"
	"correlator/procscan"
)

// Original says which publication a process shows: two processes show the same only if one is a copy of
// the other's memory, by a fork. Programs that are executed do not share addresses, but where
// their layout is not random; and then not their sockets, at the same path below the same root.
type Original struct {
	Place   procscan.Place
	Addr    uint64
	Storage memread.ProcessStorage
}

// Original is what was published at the last look.
func (t *Target) Original() (Original, error) {
	place, err := t.handle.Place()
	return Original{Place: place, Addr: t.storageAddr, Storage: t.storage}, err
}
