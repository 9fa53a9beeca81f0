package bpf

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
)

// decompress returns what is in one of the objects. Compressed, they take 0.1 MB of a binary instead of 0.5; the
// linker leaves out those that bpf2go embeds, and whose functions nothing calls.
func decompress(object []byte) (*ebpf.CollectionSpec, error) {
	r, err := gzip.NewReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("decompressing an object: %w", err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompressing an object: %w", err)
	}
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(content))
}
