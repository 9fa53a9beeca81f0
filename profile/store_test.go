package profile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
)

func newStore(t testing.TB, stacks uint32, bytes int) *Store {
	t.Helper()
	s, err := NewStore(stacks, bytes)
	assert.NilError(t, err)
	return s
}

// stackOf is a stack of n frames in one file that no other has.
func stackOf(name byte, n int) (StackTraceID, []Frame) {
	file := &File{ID: FileID{name}, Path: "/lib/" + string(name), Kind: NativeFrame}
	var frames []Frame
	for i := range n {
		frames = append(frames, Frame{File: file, Address: uint64(name)<<16 + uint64(i)})
	}
	return TraceID(frames), frames
}

// check compares the statistics of a store with its contents.
func (s *Store) check(t *testing.T) StoreStats {
	t.Helper()
	stats := s.Stats()
	bytes, files, functions := 0, make(map[FileID]*File), make(map[Function]*Function)
	for _, id := range s.stacks.Keys() {
		stack, _ := s.stacks.Peek(id)
		bytes += stackBytes + len(stack.Frames)*frameBytes
		for _, f := range stack.Frames {
			if f.File != nil && files[f.File.ID] == nil {
				files[f.File.ID] = f.File
				bytes += f.File.bytes()
			}
			if f.File != nil && files[f.File.ID] != f.File {
				t.Fatalf("two files with id %v", f.File.ID)
			}
			if f.Function != nil && functions[*f.Function] == nil {
				functions[*f.Function] = f.Function
				bytes += f.Function.bytes()
			}
			if f.Function != nil && functions[*f.Function] != f.Function {
				t.Fatalf("two functions %v", *f.Function)
			}
		}
	}
	assert.Assert(t, bytes == stats.Bytes && bytes <= s.limit && len(files) == stats.Files &&
		len(functions) == stats.Functions && len(files) == len(s.files) && len(functions) == len(s.functions),
		"%d bytes, %d files and %d functions, counted %+v", bytes, len(files), len(functions), stats)
	assert.Assert(t, stats.Added == uint64(stats.Stacks)+stats.EvictedFull+stats.EvictedBytes,
		"does not add up: %+v", stats)
	return stats
}

func TestStore(t *testing.T) {
	s := newStore(t, 3, 1<<20)
	var ids []StackTraceID
	for _, name := range []byte("abc") {
		id, frames := stackOf(name, 4)
		s.Put(id, frames)
		frames[0] = Frame{} // they stay the caller's
		ids = append(ids, id)
	}
	s.Get(ids[0])
	_, frames := stackOf('b', 4)
	s.Put(ids[1], frames)
	id, frames := stackOf('d', 4)
	s.Put(id, frames) // c was used longest ago
	for i, want := range []bool{true, true, false} {
		stack := s.Get(ids[i])
		assert.Check(t, (stack != nil) == want && (!want || stack.ID == ids[i] && TraceID(stack.Frames) == ids[i]),
			"stack %d: %v", i, stack)
	}
	stats := s.check(t)
	want := StoreStats{Stacks: 3, Files: 3, Bytes: stats.Bytes, Added: 4, Known: 4,
		EvictedFull: 1}
	assert.Check(t, stats == want, "%+v, want %+v", stats, want)
}

func TestStoreBytes(t *testing.T) {
	_, frames := stackOf('a', 10)
	one := mostBytes(frames)
	s := newStore(t, 100, 3*one)
	var ids []StackTraceID
	for _, name := range []byte("abcde") {
		id, frames := stackOf(name, 10)
		s.Put(id, frames)
		ids = append(ids, id)
		s.check(t)
	}
	stats := s.check(t)
	assert.Check(t, stats.Stacks == 3 && stats.EvictedBytes == 2 && stats.Bytes == 3*one, "%+v", stats)
	held := s.Get(ids[2])
	id, frames := stackOf('f', 25) // takes the place of two
	s.Put(id, frames)
	stats = s.check(t)
	assert.Check(t, stats.Stacks == 2 && TraceID(held.Frames) == ids[2], "%+v, %v", stats, held)

	// What cannot stay takes no other's place.
	id, frames = stackOf('g', 3*one/frameBytes)
	stack := s.Put(id, frames)
	assert.Check(t, stack.ID == id && TraceID(stack.Frames) == id && s.Get(id) == nil, stack)
	s.Put(StackTraceID{1}, nil)
	stats = s.check(t)
	assert.Check(t, stats.Stacks == 2 && stats.Refused == 2, "%+v", stats)
}

// A stack that takes all that there is finds room, alone.
func TestStoreOfOneStack(t *testing.T) {
	first, frames := stackOf('a', 10)
	s := newStore(t, 100, mostBytes(frames))
	s.Put(first, frames)
	second, frames := stackOf('b', 10)
	s.Put(second, frames)
	stats := s.check(t)
	assert.Check(t, stats.Refused == 0 && s.Get(first) == nil && s.Get(second) != nil, "%+v", stats)
}

// One file of many stacks is kept and counted once, and as long as the last stack.
func TestStoreFiles(t *testing.T) {
	const stacks, path = 20, 4000
	_, frames := stackOf('a', 1)
	s := newStore(t, stacks, stacks*(stackBytes+frameBytes*10)+2*(heldFileBytes+path))
	var ids []StackTraceID
	for i := range uint64(stacks) {
		// Another File with the same id each time, as other processes have after an update of their
		// own.
		file := &File{ID: frames[0].File.ID, Path: strings.Repeat("x", path)}
		same := &File{ID: file.ID, Path: "/another/path"}
		frames := []Frame{{File: file, Address: i}, {File: same, Address: i}, {Address: i}}
		ids = append(ids, TraceID(frames))
		s.Put(ids[i], frames)
	}
	stats := s.check(t)
	assert.Assert(t, stats.Stacks == stacks && stats.Files == 1, "%+v", stats)
	first, last := s.Get(ids[0]).Frames, s.Get(ids[stacks-1]).Frames
	assert.Check(t, first[0].File == last[1].File && last[2].File == nil && TraceID(last) == ids[stacks-1],
		"%+v, %+v", first, last)
	for i := range stacks { // others take their places
		id, frames := stackOf(byte('b'+i%2), i+1)
		s.Put(id, frames)
	}
	stats = s.check(t)
	assert.Check(t, stats.Files == 2 && stats.EvictedFull == stacks, "%+v", stats)
}

// One function of many stacks is kept and counted once, and as long as the last stack.
func TestStoreFunctions(t *testing.T) {
	const stacks, text = 20, 1000
	s := newStore(t, stacks, stacks*(stackBytes+frameBytes*10)+2*(heldFunctionBytes+2*text))
	var ids []StackTraceID
	for i := range uint32(stacks) {
		// Another Function with the same text each time, as unwinders return.
		function := func() *Function { return NewFunction(strings.Repeat("f", text), strings.Repeat("s", text)) }
		frames := []Frame{NewJVMFrame(function(), i), NewJVMFrame(function(), i+1),
			{Address: 5, Function: function()}, NewCutFrame()}
		ids = append(ids, TraceID(frames))
		stack := s.Put(ids[i], frames)
		assert.Check(t, stack.Cut && TraceID(stack.Frames) == ids[i], "%+v", stack)
	}
	stats := s.check(t)
	assert.Assert(t, stats.Stacks == stacks && stats.Functions == 1, "%+v", stats)
	first, last := s.Get(ids[0]).Frames, s.Get(ids[stacks-1]).Frames
	assert.Check(t, first[0].Function == last[2].Function && last[3].Function == nil && last[0].Kind() == JVMFrame &&
		last[3].Kind() == CutFrame && last[0].Line == stacks-1,
		"%+v, %+v", first, last)
	for i := range stacks { // others take their places
		id, frames := stackOf(byte('b'+i%2), i+1)
		stack := s.Put(id, frames)
		assert.Check(t, !stack.Cut, "%+v", stack)
	}
	stats = s.check(t)
	assert.Check(t, stats.Functions == 0 && stats.EvictedFull == stacks, "%+v", stats)
	large := []Frame{NewJVMFrame(&Function{Name: strings.Repeat("f", s.limit)}, 1), NewCutFrame()}
	stack := s.Put(TraceID(large), large)
	assert.Check(t, stack.Cut && len(stack.Frames) == 2, "%+v", stack)
	stats = s.check(t)
	assert.Check(t, stats.Refused == 1, "%+v", stats)
}

// Any order of calls leaves the counts right.
func TestStoreAddsUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newStore(t, 14, 10500)
	files := []*File{nil, nil}
	for i := range 60 { // two of each id, and more than have stacks at a time
		files = append(files, &File{ID: FileID{byte(i / 2)}, Path: fmt.Sprintf("/%0*d", i*4, i)})
	}
	functions := []*Function{nil, nil, nil}
	for i := range 12 { // two of each text
		functions = append(functions, NewFunction(fmt.Sprintf("%0*d", 1+i/2*20, i/2), ""))
	}
	var ids []StackTraceID
	for range 6000 {
		if len(ids) > 0 && random.IntN(3) == 0 {
			id := ids[random.IntN(len(ids))]
			if stack := s.Get(id); stack != nil && (stack.ID != id || TraceID(stack.Frames) != id) {
				t.Fatalf("%v: %v", id, stack)
			}
			continue
		}
		frames := make([]Frame, random.IntN(8))
		for i := range frames {
			frames[i] = Frame{File: files[random.IntN(len(files))], Function: functions[random.IntN(len(functions))],
				Address: random.Uint64N(4)}
		}
		ids = append(ids, TraceID(frames))
		s.Put(ids[len(ids)-1], frames)
		s.check(t)
	}
	stats := s.check(t)
	assert.Check(t, stats.EvictedFull != 0 && stats.EvictedBytes != 0 && stats.Refused != 0 && stats.Known != 0,
		"not everything happened: %+v", stats)
}

func TestStoreConcurrentUse(t *testing.T) {
	s := newStore(t, 8, 1<<20)
	var users sync.WaitGroup
	const rounds = 2000
	for user := range 4 {
		users.Go(func() {
			for i := range rounds {
				id, frames := stackOf(byte((i+user)%16), 5)
				got := s.Put(id, frames)
				assert.Check(t, got.ID == id && slices.EqualFunc(got.Frames, frames, func(a, b Frame) bool {
					return a.FileID() == b.FileID() && a.Address == b.Address
				}), "%v, want %v", got, frames)
			}
		})
	}
	users.Wait()
	stats := s.check(t)
	assert.Check(t, stats.Added+stats.Known == 4*rounds, "%+v", stats)
}

// Most samples have a stack that was there before.
func TestPutKnownAllocatesNothing(t *testing.T) {
	s := newStore(t, 8, 1<<20)
	id, frames := stackOf('a', 64)
	s.Put(id, frames)
	n := testing.AllocsPerRun(100, func() { s.Put(id, frames); s.Get(id) })
	assert.Check(t, n == 0, "%v allocations", n)
}

func TestNewStoreRefusesZero(t *testing.T) {
	_, err := NewStore(0, 1)
	assert.Check(t, err != nil, "no error")
}
