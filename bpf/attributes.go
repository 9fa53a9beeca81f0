package bpf

import (
	"unsafe"

	"github.com/cilium/ebpf"
)

// attributesBatch is how many attributes one system call returns: 33 KiB of buffers.
const attributesBatch = 64

// attributesDrain reads the attributes that the counts of a table refer to. There is one table for
// each of counts, and the program puts them there while it counts.
type attributesDrain struct {
	tables [2]*ebpf.Map
	taken  uint64 // out of the tables since OpenSampler
	found  map[samplerAttributesKey][]byte
	bytes  []byte // of found; never moved, as that refers to it
	batch  batch

	// Allocated when there are any.
	keys   *[attributesBatch]samplerAttributesKey
	values *[attributesBatch]samplerCorrelatorAttributes
}

// read moves what is in a table into found. stored is how many were put into both so far. If that
// is how many were taken out, there are none, which is nearly always so where no process has such
// attributes, and nothing is read.
func (d *attributesDrain) read(table uint32, stored uint64) error {
	if stored == d.taken {
		return nil
	}
	if d.keys == nil {
		d.keys = new([attributesBatch]samplerAttributesKey)
		d.values = new([attributesBatch]samplerCorrelatorAttributes)
		d.found = make(map[samplerAttributesKey][]byte)
	}
	return d.batch.drain(d.tables[table].FD(), unsafe.Pointer(d.keys), unsafe.Pointer(d.values), attributesBatch,
		func(n int) {
			for i := range n {
				d.add(d.keys[i], &d.values[i])
			}
			d.taken += uint64(n)
		})
}

func (d *attributesDrain) add(key samplerAttributesKey, value *samplerCorrelatorAttributes) {
	entries := value.Entries[:min(int(value.Size), len(value.Entries))]
	if cap(d.bytes)-len(d.bytes) < len(entries) {
		d.bytes = make([]byte, 0, attributesBatch*len(value.Entries))
	}
	start := len(d.bytes)
	d.bytes = append(d.bytes, entries...)
	d.found[key] = d.bytes[start:len(d.bytes):len(d.bytes)]
}

// lookup returns the attributes of a count, valid until forget.
func (d *attributesDrain) lookup(key *samplerCountKey) []byte {
	if key.Attributes == 0 || len(d.found) == 0 {
		return nil
	}
	return d.found[samplerAttributesKey{Hash: key.Attributes, Target: key.Stack.Target}]
}

// forget is called when the counts were drained.
func (d *attributesDrain) forget() {
	clear(d.found)
	d.bytes = d.bytes[:0]
}
