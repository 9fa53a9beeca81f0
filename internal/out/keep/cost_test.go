package keep

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// What is kept is counted as no less than its values and texts, whatever it is most of. What maps take
// beside, TestSoakMemory shows.
func TestCosts(t *testing.T) {
	const many = 1000
	text := func(i, n int) string { return fmt.Sprintf("%0*d", n, i) }
	one, main := resource("a", 0), stackOf("main")
	own := func(i int) *profile.Sample { return newSample(one, 0, begin, main) }
	sizes := struct{ owner, process, transaction, stack, frame, thread, slice, entry uintptr }{
		unsafe.Sizeof(owner{}), unsafe.Sizeof(process{}) + unsafe.Sizeof(profile.Resource{}),
		unsafe.Sizeof(transaction{}),
		unsafe.Sizeof(stack{}), unsafe.Sizeof(frame{}), unsafe.Sizeof(thread{}), unsafe.Sizeof(timeSlice{}),
		unsafe.Sizeof(entry{})}
	function := unsafe.Sizeof(profile.Function{})
	for what, c := range map[string]struct {
		newOne func(i int) *profile.Sample
		least  uintptr // for each
	}{
		"entries": {func(i int) *profile.Sample {
			s := own(i)
			s.SpanID = [8]byte{byte(i), byte(i >> 8), 1}
			return s
		}, sizes.entry},
		"transactions": {func(i int) *profile.Sample { return newSample(one, i, begin, main) },
			sizes.transaction + sizes.entry},
		"attributes": {func(i int) *profile.Sample {
			s := newSample(one, i, begin, main)
			s.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "key", Value: text(i, 500)}})
			return s
		}, sizes.transaction + sizes.entry + 503},
		"threads": {func(i int) *profile.Sample {
			s := own(i)
			s.TID, s.Thread = i+1, text(i, 15)
			return s
		}, sizes.thread + sizes.entry + 15},
		"stacks of old frames": {func(i int) *profile.Sample {
			s := own(i)
			s.Stack = &profile.Stack{ID: profile.StackTraceID{byte(i), byte(i >> 8), 1}, Frames: main.Frames}
			return s
		}, sizes.stack + unsafe.Sizeof(&frame{}) + sizes.entry},
		"frames of methods": {func(i int) *profile.Sample {
			f := profile.NewFunction(text(i, 300), strings.Repeat("s", 200))
			f.SystemName = strings.Repeat("y", 100)
			frames := []profile.Frame{profile.NewJVMFrame(f, 1)}
			s := own(i)
			s.Stack = &profile.Stack{ID: profile.TraceID(frames), Frames: frames}
			return s
		}, sizes.stack + sizes.frame + function + 600 + sizes.entry},
		"frames of files": {func(i int) *profile.Sample {
			f := &profile.File{ID: profile.FileID{byte(i), byte(i >> 8), 1}, Kind: profile.NativeFrame,
				Path:    text(i, 300),
				BuildID: strings.Repeat("b", 40), Code: make([]profile.CodeRange, 100)}
			frames := []profile.Frame{{File: f, Address: 1}}
			s := own(i)
			s.Stack = &profile.Stack{ID: profile.TraceID(frames), Frames: frames}
			return s
		}, sizes.stack + sizes.frame + unsafe.Sizeof(profile.File{}) + 340 + 100*unsafe.Sizeof(profile.CodeRange{}) +
			sizes.entry},
		"processes": {func(i int) *profile.Sample {
			r := resource("a", i+1)
			r.Name, r.ExecutablePath, r.Version = text(i, 1000), text(i, 4000), text(i, 2000)
			return newSample(r, 0, begin, main)
		}, sizes.process + sizes.transaction + sizes.stack + sizes.frame + sizes.thread + sizes.entry + 7000},
		"owners": {func(i int) *profile.Sample {
			return newSample(resource(text(i, 64), 0), 0, begin, main)
		}, sizes.owner + sizes.process + sizes.transaction + sizes.stack + sizes.frame + sizes.thread + sizes.slice +
			sizes.entry + 64},
		"waits": {func(i int) *profile.Sample {
			w := newWait(one, 0, begin, main, byHolder(1))
			w.SpanID = [8]byte{byte(i), byte(i >> 8), 1}
			return w
		}, unsafe.Sizeof(waitEntry{})},
		"causes": {func(i int) *profile.Sample {
			w := byHolder(1)
			w.Path, w.Waker.Thread, w.Waker.Service = text(i, 200), text(i, 15), text(i, 100)
			return newWait(one, 0, begin, main, w)
		}, unsafe.Sizeof(waitEntry{}) + unsafe.Sizeof(cause{}) + unsafe.Sizeof(causeID{}) + 315},
		"slices": {func(i int) *profile.Sample {
			return newSample(one, 0, begin.Add(time.Duration(i+1)*time.Second), main)
		}, sizes.slice + sizes.entry},
	} {
		s := NewStore(2*many*time.Second, 64<<20)
		if what == "slices" {
			s.period = slicesOfPeriod * time.Second
		}
		s.Add(own(0), begin)
		before := s.Stats().Bytes
		for i := range many {
			sample := c.newOne(i)
			s.Add(sample, sample.At)
		}
		for _, o := range s.owners { // which then takes less
			for _, slice := range slices.Concat(o.slices, o.waits.slices) {
				s.end(o, slice, begin.UnixNano())
			}
		}
		addUp(t, s)
		counted := s.Stats().Bytes - before
		assert.Check(t, s.Stats().Added+s.Stats().Waits.Kept == many+1 && counted >= many*int(c.least),
			"%s: %d bytes are counted for each of %d",
			what, counted/many, c.least)
	}
}
