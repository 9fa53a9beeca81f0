package profiles

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	profiles "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"gotest.tools/v3/assert"

	"correlator/profile"
)

// moment is when most samples are taken.
var moment = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// counter is a source of ids that are all different.
type counter struct{ n byte }

func (c *counter) Read(b []byte) (int, error) {
	c.n++
	for i := range b {
		b[i] = c.n
	}
	return len(b), nil
}

// broken is a source of nothing.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("no randomness") }

func testOptions(random io.Reader) Options {
	return Options{SamplesPerSecond: 20, HostID: "host", Version: "v1.2.3", Random: random}
}

// collect returns a builder and the requests that it has emitted.
func collect(options Options) (*Builder, *[]Request) {
	requests := new([]Request)
	return NewBuilder(options, func(r Request) { *requests = append(*requests, r) }), requests
}

// one is the request that samples become.
func one(t *testing.T, options Options, samples ...profile.Sample) *collector.ExportProfilesServiceRequest {
	t.Helper()
	b, requests := collect(options)
	for i := range samples {
		assert.NilError(t, b.Add(&samples[i]))
	}
	b.Flush()
	assert.Assert(t, len(*requests) == 1, "%d requests", len(*requests))
	return decode(t, (*requests)[0].Body)
}

func stackOf(frames ...profile.Frame) *profile.Stack {
	return &profile.Stack{ID: profile.TraceID(frames), Frames: frames}
}

// sampleOf is a sample of some frames in the second that begins at moment.
func sampleOf(p *profile.Resource, frames ...profile.Frame) profile.Sample {
	return profile.Sample{
		Resource: p, Stack: stackOf(frames...), Count: 1,
		TraceID: [16]byte{1}, SpanID: [8]byte{2}, TransactionID: [8]byte{3}, TID: 7, Thread: "main",
		Start: moment, End: moment.Add(time.Second),
	}
}

// stackTraceID computes the id of an exported stack from what a receiver has of it, by the
// definition: FNV-1a with 128 bits over file id and decimal digits of the address of each frame.
func stackTraceID(t testing.TB, d *profiles.ProfilesDictionary, stack *profiles.Stack) [16]byte {
	t.Helper()
	hash := fnv.New128a()
	for _, i := range stack.LocationIndices {
		location := d.LocationTable[i]
		var lines []byte
		for _, l := range location.Lines {
			function := d.FunctionTable[l.FunctionIndex]
			lines = append(lines, d.StringTable[function.NameStrindex]+d.StringTable[function.FilenameStrindex]...)
			lines = binary.BigEndian.AppendUint64(lines, uint64(l.Line))
			lines = binary.BigEndian.AppendUint64(lines, uint64(l.Column))
		}
		fileID := strings.Repeat(fmt.Sprintf("%016x", xxhash.Sum64(lines)), 2) // of no file
		ofFile := attributes(d, d.MappingTable[location.MappingIndex].AttributeIndices)
		if htlhash := ofFile["process.executable.build_id.htlhash"]; htlhash != nil {
			fileID = htlhash.GetStringValue()
		}
		content, err := hex.DecodeString(fileID)
		assert.NilError(t, err)
		hash.Write(strconv.AppendUint(content, location.Address, 10))
	}
	return [16]byte(hash.Sum(nil))
}

// attributes are those of something, by key.
func attributes(d *profiles.ProfilesDictionary, indices []int32) map[string]*common.AnyValue {
	found := make(map[string]*common.AnyValue)
	for _, i := range indices {
		a := d.AttributeTable[i]
		found[d.StringTable[a.KeyStrindex]] = a.Value
	}
	return found
}

// resourceOf are the attributes of a resource, as text.
func resourceOf(r *profiles.ResourceProfiles) map[string]string {
	found := make(map[string]string)
	for _, a := range r.Resource.GetAttributes() {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			found[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			found[a.Key] = fmt.Sprint(v.IntValue)
		}
	}
	return found
}

// observation is a point of a sample as a receiver has it, or should.
type observation struct {
	pid, thread, transaction string
	published                string // attributes, by key
	tid                      int64
	stack, trace             [16]byte
	span                     [8]byte
	time                     uint64
}

// observations are all that is in a request, with their values.
func observations(t testing.TB, request *collector.ExportProfilesServiceRequest, into map[observation]uint64) {
	t.Helper()
	d := request.Dictionary
	for _, r := range request.ResourceProfiles {
		for _, s := range r.ScopeProfiles[0].Profiles[0].Samples {
			a := attributes(d, s.AttributeIndices)
			o := observation{
				pid: resourceOf(r)["process.pid"], tid: a["thread.id"].GetIntValue(),
				thread: a["thread.name"].GetStringValue(), transaction: a["transaction.id"].GetStringValue(),
				stack: stackTraceID(t, d, d.StackTable[s.StackIndex]), published: publishedIn(a),
				trace: [16]byte(d.LinkTable[s.LinkIndex].TraceId), span: [8]byte(d.LinkTable[s.LinkIndex].SpanId),
			}
			for i, at := range s.TimestampsUnixNano {
				o.time = at
				into[o] = addCounts(into[o], valueOf(s, i))
			}
		}
	}
}

// valueOf returns what the timestamp at a place stands for.
func valueOf(s *profiles.Sample, i int) uint64 {
	if len(s.Values) == 0 {
		return 1
	}
	return uint64(s.Values[i])
}

// publishedIn are attributes of a sample that a thread published.
func publishedIn(attributes map[string]*common.AnyValue) (list string) {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		if key != "thread.id" && key != "thread.name" && key != "transaction.id" {
			list += fmt.Sprintf("%q=%q,", key, attributes[key].GetStringValue())
		}
	}
	return list
}

// publishedBy are those that should be exported: the first of those that become the same.
func publishedBy(s *profile.Sample) string {
	values := make(map[string]*common.AnyValue)
	for key, value := range s.Attributes.All() {
		key = valid(key)
		if _, again := values[key]; again || key == "" || slices.Contains(ourKeys, key) {
			continue
		}
		values[key] = &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(value)}}
	}
	return publishedIn(values)
}

var ourKeys = []string{"thread.id", "thread.name", "transaction.id", "profile.frame.type",
	"process.executable.build_id.htlhash", "process.executable.build_id.gnu", "process.executable.build_id.go"}

// observe notes what should become of a sample.
func observe(s *profile.Sample, into map[observation]uint64) {
	o := observation{pid: strconv.Itoa(s.Resource.PID), stack: s.Stack.ID, thread: valid(s.Thread),
		tid: int64(max(s.TID, 0)), published: publishedBy(s)}
	if s.TraceID != [16]byte{} {
		switch {
		case s.SpanID != [8]byte{}:
			o.trace, o.span = s.TraceID, s.SpanID
		case s.TransactionID != [8]byte{}:
			o.trace, o.span = s.TraceID, s.TransactionID
		}
		if o.trace != [16]byte{} && s.TransactionID != [8]byte{} && s.TransactionID != o.span {
			o.transaction = hex.EncodeToString(s.TransactionID[:])
		}
	}
	o.time = uint64(s.Start.UnixNano())
	if d := s.End.Sub(s.Start); d > 0 {
		o.time += uint64(d) / 2
	}
	into[o] = addCounts(into[o], s.Count)
}

// realistic are 1000 samples as two busy processes have them in ten seconds: 100 different stacks
// of 50 frames in eight files, half of the frames shared with the other stacks, 50 spans, 20
// threads.
func realistic() []profile.Sample {
	files := make([]*profile.File, 8)
	for i := range files {
		files[i] = &profile.File{
			ID: profile.FileID{byte(i + 1)}, Kind: profile.NativeFrame,
			BuildID: "0123456789abcdef0123456789abcdef0123456" + string(rune('0'+i)),
			Path:    "/usr/lib/x86_64-linux-gnu/lib" + string(rune('a'+i)) + ".so",
		}
	}
	files[0] = nil // code of a JIT
	processes := []*profile.Resource{shop, {Service: profile.Service{Name: "cart"}, PID: 43, ExecutableName: "java",
		ExecutablePath: "/usr/bin/java"}}
	stacks := make([][]profile.Frame, 100)
	for i := range stacks {
		for j := range 50 {
			f := profile.Frame{File: files[j/8%8], Address: uint64(j*4099 + 1_000_000)}
			if j < 25 {
				f.Address += uint64(i * 64)
			}
			if f.File == nil {
				f.Address += 0x7f0000000000
			}
			stacks[i] = append(stacks[i], f)
		}
	}
	samples := make([]profile.Sample, 1000)
	for i := range samples {
		stack := stacks[i*37%100]
		start := moment.Add(time.Duration(i/10) * 100 * time.Millisecond)
		samples[i] = profile.Sample{
			Resource: processes[i%2], Stack: &profile.Stack{ID: profile.TraceID(stack), Frames: stack}, Count: 1,
			TraceID: [16]byte{1, byte(i / 20)}, SpanID: [8]byte{2, byte(i / 20)},
			TransactionID: [8]byte{3, byte(i / 20)},
			TID:           100 + i%20, Thread: "worker-" + string(rune('a'+i%20)), Start: start,
			End: start.Add(100 * time.Millisecond),
		}
	}
	return samples
}
