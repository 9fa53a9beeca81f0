package profiles

import (
	"encoding/binary"
	"errors"
	"maps"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// choices are made by a fuzzer, byte by byte.
type choices []byte

func (c *choices) below(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

func (c *choices) id() (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(c.below(4)))
	return id
}

// FuzzBuilder adds any samples, and holds every request against the rules and all of them against
// what was added.
func FuzzBuilder(f *testing.F) {
	all := make([]byte, 512)
	for i := range all {
		all[i] = byte(i * 7)
	}
	f.Add(all, uint16(0), "a\xff", "\x00")
	f.Add(all, uint16(900), "", "läuft")
	f.Add([]byte{1, 2, 3}, uint16(2000), "x", "y")
	f.Fuzz(func(t *testing.T, b []byte, limit uint16, name, other string) {
		files := []*profile.File{
			nil,
			{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: name, BuildID: other},
			{ID: profile.FileID{1}, Kind: profile.KernelFrame, Path: other}, // the same by its id
			{ID: profile.FileID{2}, Kind: profile.KernelFrame, Path: name, BuildID: "aa"},
			{ID: profile.FileID{3}, Kind: profile.Kind(9)},
			{ID: profile.FileID{4}, Kind: profile.NativeFrame, Path: name, Code: []profile.CodeRange{
				{Start: 1, Limit: 2, Offset: 5}, {Start: 2, Limit: 301, Offset: 7}}},
		}
		functions := []*profile.Function{nil, nil, profile.NewFunction(name, other), profile.NewFunction(other, ""),
			{Name: name, SourceFile: other}, {Name: other}}
		processes := []*profile.Resource{{PID: 1, Service: profile.Service{Name: name}},
			{PID: 2, Service: profile.Service{Name: name}, ExecutablePath: other}, {PID: 3}}
		names := []string{"", name, other, "main"}
		keys := []string{"http.route", "", name, other, "thread.name", "profile.frame.type", "a\x80", "a\ufffd", "aµ"}
		addresses := []uint64{1, 2, 1 << 63, 300, 0}
		bytes := int(limit)
		if bytes == 0 {
			bytes = MaxRequestBytes
		}
		options := testOptions(&counter{})
		options.MaxBytes = bytes
		builder, requests := collect(options)
		want, got := make(map[observation]uint64), make(map[observation]uint64)
		added := uint64(0)
		for c := choices(b); len(c) > 0; {
			sample := profile.Sample{
				Resource: processes[c.below(len(processes))], Thread: names[c.below(len(names))], TID: c.below(4) - 1,
				SpanID: c.id(), TransactionID: c.id(), Count: uint64(c.below(5)),
			}
			sample.TraceID[0] = byte(c.below(2))
			for range c.below(4) {
				sample.Attributes = profile.NewAttributes([]profile.Attribute{
					{Key: keys[c.below(len(keys))], Value: names[c.below(len(names))]},
					{Key: keys[c.below(len(keys))], Value: names[c.below(len(names))]},
				})
			}
			var frames []profile.Frame
			for range c.below(6) {
				function := functions[c.below(len(functions))]
				if c.below(4) == 3 {
					frames = append(frames, profile.NewJVMFrame(profile.NewFunction(name, other), uint32(c.below(3))))
					continue
				}
				frames = append(frames, profile.Frame{File: files[c.below(len(files))], Function: function,
					Line: uint32(c.below(2)), Address: addresses[c.below(len(addresses))]})
			}
			if c.below(4) == 3 {
				frames = append(frames, profile.NewCutFrame())
			}
			sample.Stack = stackOf(frames...)
			sample.Start = moment.Add(time.Duration(c.below(5)) * time.Second)
			sample.End = sample.Start.Add(time.Duration(c.below(4)-1) * time.Second)
			switch err := builder.Add(&sample); {
			case err == nil:
				observe(&sample, want)
				added += sample.Count
			case errors.Is(err, ErrInvalid):
			case !errors.Is(err, ErrTooLarge) || bytes > 8000+16*(len(name)+len(other)):
				t.Fatal(err)
			}
			if c.below(16) == 15 {
				builder.Flush()
			}
		}
		builder.Flush()
		for _, r := range *requests {
			assert.Check(t, len(r.Body) <= bytes, "request of %d bytes, limit %d", len(r.Body), bytes)
			request := decode(t, r.Body)
			samples := 0
			for _, p := range request.ResourceProfiles {
				samples += len(p.ScopeProfiles[0].Profiles[0].Samples)
			}
			assert.Check(t, samples == r.Samples && len(request.ResourceProfiles) == r.Profiles,
				"%d samples and %d profiles, not %d and %d", samples, len(request.ResourceProfiles), r.Samples,
				r.Profiles)
			added -= r.Count
			observations(t, request, got)
		}
		assert.Check(t, added == 0 && maps.Equal(got, want), "%d not counted; %v, want %v", added, got, want)
	})
}
