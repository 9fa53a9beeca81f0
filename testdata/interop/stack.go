package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// sample is a sample with all that it refers to.
func sample(d pprofile.ProfilesDictionary, s pprofile.Sample) (object, error) {
	attributes, err := pprofile.FromAttributeIndices(d.AttributeTable(), s, d)
	if err != nil {
		return nil, fmt.Errorf("reading the attributes of a sample: %w", err)
	}
	id, kinds, err := stack(d, d.StackTable().At(int(s.StackIndex())))
	if err != nil {
		return nil, err
	}
	link := d.LinkTable().At(int(s.LinkIndex()))
	return object{
		"stack_trace_id": id, "frame_types": kinds, "attributes": attributes.AsRaw(),
		"trace_id": link.TraceID().String(), "span_id": link.SpanID().String(), // empty when they are zero
		"values": s.Values().AsRaw(), "timestamps": s.TimestampsUnixNano().AsRaw(),
	}, nil
}

// lineID is the file id of a frame without a file: xxh64 over its lines, of nothing without any;
// twice.
func lineID(d pprofile.ProfilesDictionary, lines pprofile.LineSlice) string {
	hash := xxhash.New()
	for _, line := range lines.All() {
		f := d.FunctionTable().At(int(line.FunctionIndex()))
		hash.WriteString(d.StringTable().At(int(f.NameStrindex())))
		hash.WriteString(d.StringTable().At(int(f.FilenameStrindex())))
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(line.Line())))
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(line.Column())))
	}
	return strings.Repeat(fmt.Sprintf("%016x", hash.Sum64()), 2)
}

// stack computes the stack-trace-id of a stack by its definition: FNV-1a with 128 bits over file id
// and decimal digits of the address of each frame, leaf first.
func stack(d pprofile.ProfilesDictionary, s pprofile.Stack) (id string, kinds []string, err error) {
	hash := fnv.New128a()
	for _, i := range s.LocationIndices().All() {
		l := d.LocationTable().At(int(i))
		ofLocation, err := pprofile.FromAttributeIndices(d.AttributeTable(), l, d)
		if err != nil {
			return "", nil, fmt.Errorf("reading the attributes of a location: %w", err)
		}
		kind, ok := ofLocation.Get("profile.frame.type")
		if !ok {
			return "", nil, errors.New("a location without a frame type")
		}
		kinds = append(kinds, kind.Str())
		ofMapping, err := pprofile.FromAttributeIndices(d.AttributeTable(), d.MappingTable().At(int(l.MappingIndex())),
			d)
		if err != nil {
			return "", nil, fmt.Errorf("reading the attributes of a mapping: %w", err)
		}
		file := lineID(d, l.Lines())
		if htlhash, ok := ofMapping.Get("process.executable.build_id.htlhash"); ok {
			file = htlhash.Str()
		}
		content, err := hex.DecodeString(file)
		if err != nil {
			return "", nil, fmt.Errorf("decoding a file id: %w", err)
		}
		hash.Write(strconv.AppendUint(content, l.Address(), 10))
	}
	return hex.EncodeToString(hash.Sum(nil)), kinds, nil
}
