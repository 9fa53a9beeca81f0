package profile

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/elastic/go-freelru"

	"correlator/internal/host/share"
)

const (
	// StoreBytes is the size of the store in an agent that should stay within 20 MB, where garbage
	// collection can let it double. It holds 2100 stacks of 60 frames, less the names of their
	// functions, 300 bytes for each different one: two CPUs that are sampled 20 times a second and
	// never repeat a stack fill it in 50 seconds.
	StoreBytes = 4 << 20

	// StoreStacks goes with StoreBytes: it is reached first only where stacks have fewer than 14
	// frames. The table takes 64 bytes for each, in addition to StoreBytes.
	StoreStacks = 8192
)

const (
	frameBytes = int(unsafe.Sizeof(Frame{}))
	stackBytes = int(unsafe.Sizeof(Stack{}))
	// heldFileBytes is what a file takes besides its strings: File, heldFile and the map's entry.
	heldFileBytes = int(unsafe.Sizeof(File{})+unsafe.Sizeof(heldFile{})) + 64
	// heldFunctionBytes is the same of a function, whose entry has a Function as its key.
	heldFunctionBytes = int(unsafe.Sizeof(Function{})+unsafe.Sizeof(heldFunction{})) + 96
	codeRangeBytes    = int(unsafe.Sizeof(CodeRange{}))
)

// Store keeps stacks by their id, shared by all processes, and the files and functions of their
// frames, each once. It is bounded by bytes, because a stack can have two frames or two hundred, and
// by stacks, because their table is allocated at the start. When either limit is reached, the least
// recently used stacks are evicted. It is safe for concurrent use.
type Store struct {
	mu        sync.Mutex
	stacks    *freelru.LRU[StackTraceID, *Stack]
	files     map[FileID]*heldFile
	functions map[Function]*heldFunction
	limit     int
	stats     StoreStats
}

// heldFile is the one File with its id that all stacks of the store refer to.
type heldFile struct {
	file *File
	uses int // runs of frames in this file, of all stacks
}

// heldFunction is the one Function with its text that all stacks of the store refer to.
type heldFunction struct {
	function *Function
	uses     int // runs of frames in this function, of all stacks
}

// StoreStats is a consistent snapshot of a store. Added = Stacks + EvictedFull + EvictedBytes.
type StoreStats struct {
	Stacks, Files, Functions int // held now
	Bytes                    int // of them

	Added        uint64 // stacks that were new
	Known        uint64 // stacks that Put or Get found
	Refused      uint64 // stacks without frames, or too large for the whole store
	EvictedFull  uint64 // stacks evicted because the table was full
	EvictedBytes uint64 // stacks evicted because of the limit of bytes
}

// NewStore returns an empty store with a limit of stacks (not 0) and of the bytes of stacks,
// files and functions.
func NewStore(stacks uint32, bytes int) (*Store, error) {
	table, err := freelru.New[StackTraceID, *Stack](stacks, share.NewHash[StackTraceID]())
	if err != nil {
		return nil, fmt.Errorf("creating a store of %d stacks: %w", stacks, err)
	}
	s := &Store{
		stacks: table, files: make(map[FileID]*heldFile), functions: make(map[Function]*heldFunction), limit: bytes,
	}
	table.SetOnEvict(func(_ StackTraceID, stack *Stack) { s.release(stack.Frames) })
	return s, nil
}

// Put returns the stack with an id, which must be that of the frames; it copies the frames. A stack
// that is stored already costs one lookup, and counts as used. One that is too large for the whole
// store, or has no frames, is returned and not stored. The id says nothing of the functions of frames
// that have a file: those of the first stack with an id are kept.
func (s *Store) Put(id StackTraceID, frames []Frame) *Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stack := s.get(id); stack != nil {
		return stack
	}
	if len(frames) == 0 || mostBytes(frames) > s.limit {
		s.stats.Refused++
		return &Stack{ID: id, Frames: slices.Clone(frames), Cut: isCut(frames)}
	}
	s.stats.Added++
	stack := &Stack{ID: id, Frames: s.hold(frames), Cut: isCut(frames)}
	if s.stacks.Add(id, stack) {
		s.stats.EvictedFull++
	}
	for s.stats.Bytes > s.limit {
		s.stacks.RemoveOldest()
		s.stats.EvictedBytes++
	}
	return stack
}

// Get returns the stack with an id, nil if it is not stored. A stored one counts as used, and as
// known. A missing one is not counted: the caller will put it.
func (s *Store) Get(id StackTraceID) *Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(id)
}

func (s *Store) get(id StackTraceID) *Stack {
	stack, ok := s.stacks.Get(id)
	if ok {
		s.stats.Known++
	}
	return stack
}

// Stats returns a snapshot of the counters.
func (s *Store) Stats() StoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Stacks, stats.Files, stats.Functions = s.stacks.Len(), len(s.files), len(s.functions)
	return stats
}

// mostBytes returns the most that a stack can take: when it is the only one and each run of frames
// has a file and a function of its own.
func mostBytes(frames []Frame) int {
	bytes := stackBytes + len(frames)*frameBytes
	var last Frame
	for _, f := range frames {
		if f.File != nil && f.File != last.File {
			bytes += f.File.bytes()
		}
		if f.Function != nil && f.Function != last.Function {
			bytes += f.Function.bytes()
		}
		last = f
	}
	return bytes
}

func (f *File) bytes() int {
	return heldFileBytes + len(f.BuildID) + len(f.GoBuildID) + len(f.Path) + len(f.Code)*codeRangeBytes
}

func (f *Function) bytes() int { return heldFunctionBytes + f.TextBytes() }

// hold returns a copy of frames in which every file and every function is the one that the store
// keeps, and adds its size.
func (s *Store) hold(frames []Frame) []Frame {
	held := slices.Clone(frames)
	var from, last Frame // as they came, and as they are kept
	for i := range held {
		f := &held[i]
		came := *f
		switch {
		case f.File == nil:
		case f.File == from.File:
			f.File = last.File
		default:
			f.File = s.keepFile(f.File)
		}
		switch {
		case f.Function == nil:
		case f.Function == from.Function:
			f.Function = last.Function
		default:
			f.Function = s.keepFunction(f.Function)
		}
		if f.File != nil && f.File != last.File {
			s.files[f.File.ID].uses++
		}
		if f.Function != nil && f.Function != last.Function {
			s.functions[*f.Function].uses++
		}
		from, last = came, *f
	}
	s.stats.Bytes += stackBytes + len(held)*frameBytes
	return held
}

// keepFile returns the file that the store keeps for the id of f, which may be f.
func (s *Store) keepFile(f *File) *File {
	if held := s.files[f.ID]; held != nil {
		return held.file
	}
	s.files[f.ID] = &heldFile{file: f}
	s.stats.Bytes += f.bytes()
	return f
}

// keepFunction returns the function that the store keeps for the text of f, which may be f.
func (s *Store) keepFunction(f *Function) *Function {
	if held := s.functions[*f]; held != nil {
		return held.function
	}
	s.functions[*f] = &heldFunction{function: f}
	s.stats.Bytes += f.bytes()
	return f
}

// release undoes hold.
func (s *Store) release(frames []Frame) {
	var last Frame
	for _, f := range frames {
		if f.File != nil && f.File != last.File {
			held := s.files[f.File.ID]
			if held.uses--; held.uses == 0 {
				delete(s.files, f.File.ID)
				s.stats.Bytes -= f.File.bytes()
			}
		}
		if f.Function != nil && f.Function != last.Function {
			held := s.functions[*f.Function]
			if held.uses--; held.uses == 0 {
				delete(s.functions, *f.Function)
				s.stats.Bytes -= f.Function.bytes()
			}
		}
		last = f
	}
	s.stats.Bytes -= stackBytes + len(frames)*frameBytes
}
