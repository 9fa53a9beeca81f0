package profile

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/procscan"
)

// deepStack is a stack of 64 frames in a few files, the way samples have them: runs of frames in
// one library.
func deepStack() []Frame {
	files := []*File{{ID: FileID{1}}, {ID: FileID{2}}, nil, {ID: FileID{3}}}
	frames := make([]Frame, 64)
	for i := range frames {
		frames[i] = Frame{File: files[i/16], Address: uint64(i)*4099 + 1_000_000}
		if frames[i].File == nil {
			frames[i].Address += 0x7f0000000000
		}
	}
	return frames
}

func BenchmarkTraceID(b *testing.B) {
	frames := deepStack()
	b.ReportAllocs()
	for b.Loop() {
		TraceID(frames)
	}
}

// 64 addresses in an address space of 150 mappings: runs of 8 in one file, as stacks have them, and
// each in another file, as none has them.
func BenchmarkAppendFrames(b *testing.B) {
	files := newFiles(b)
	process := &fakeProcess{}
	for i := range uint64(150) {
		start := 0x7f0000000000 + i<<24
		process.mappings = append(process.mappings, libraryMapping(b, library, start))
	}
	space := NewAddressSpace(files, pace)
	assert.NilError(b, space.Update(time.Now(), process))
	for _, bb := range []struct {
		name string
		run  uint64
	}{{"runs of 8", 8}, {"no runs", 1}} {
		stack := make([]uint64, 64)
		for i := range stack {
			m := process.mappings[uint64(i)/bb.run*37%150]
			stack[i] = m.Start + uint64(i) + 1
		}
		b.Run(bb.name, func(b *testing.B) {
			var frames []Frame
			b.ReportAllocs()
			for b.Loop() {
				frames = space.AppendFrames(frames[:0], stack)
			}
			if frames[63].File == nil {
				b.Fatal(frames[63])
			}
		})
	}
	b.Run("unknown", func(b *testing.B) {
		stack := make([]uint64, 64)
		for i := range stack {
			stack[i] = uint64(i+2) << 20
		}
		var frames []Frame
		b.ReportAllocs()
		for b.Loop() {
			frames = space.AppendFrames(frames[:0], stack)
		}
	})
	b.Run("update without a change", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := space.Update(time.Now(), process); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The first update of a process whose files are cached, and are not.
func BenchmarkUpdate(b *testing.B) {
	process := &fakeProcess{mappings: []procscan.Mapping{libraryMapping(b, library, 0x7f0000000000)}}
	b.Run("known file", func(b *testing.B) {
		files := newFiles(b)
		b.ReportAllocs()
		for b.Loop() {
			if err := NewAddressSpace(files, pace).Update(time.Now(), process); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new file", func(b *testing.B) {
		files := newFiles(b)
		b.ReportAllocs()
		for b.Loop() {
			files.images.Purge()
			if err := NewAddressSpace(files, pace).Update(time.Now(), process); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkStore(b *testing.B) {
	newStore := func(b *testing.B) *Store {
		store, err := NewStore(StoreStacks, StoreBytes)
		assert.NilError(b, err)
		return store
	}
	frames := deepStack()
	b.Run("put, known", func(b *testing.B) {
		store, id := newStore(b), TraceID(frames)
		store.Put(id, frames)
		b.ReportAllocs()
		for b.Loop() {
			store.Put(id, frames)
		}
	})
	b.Run("put, new", func(b *testing.B) {
		store := newStore(b)
		id := StackTraceID{}
		b.ReportAllocs()
		for b.Loop() {
			id[0]++
			for i := 0; id[i] == 0; i++ {
				id[i+1]++
			}
			store.Put(id, frames)
		}
	})
	b.Run("get", func(b *testing.B) {
		store, id := newStore(b), TraceID(frames)
		store.Put(id, frames)
		b.ReportAllocs()
		for b.Loop() {
			if store.Get(id) == nil {
				b.Fatal("missing")
			}
		}
	})
}
