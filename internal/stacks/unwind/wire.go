package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"correlator/internal/worker"
	"correlator/procscan"
)

// A message begins with a byte that says what it is. The agent has one request under way at a time,
// and the worker answers each once; before that it may ask for tables.
const (
	opStart       = 'H' // start, with the descriptors of the tables in their order; answered by itself and started
	opSynchronize = 'S' // synchronize; answered by itself and synchronized
	opProbe       = 'P' // synchronize, of a process that is not to be unwound; answered by itself and probed
	opRemove      = 'R' // remove; answered by itself
	opFrames      = 'F' // see appendFramesRequest; answered by a framesAnswer

	opTable        = 'M' // the worker asks for a table of 1<<n entries, n the second byte; answered by itself
	opRuntime      = 'K' // the worker asks for the table of a runtimeKind, its number is the second byte; likewise
	opTableRefused = 'N' // and a descriptor, or by this
	opEntries      = 'E' // the next entries of the table that the worker got last; answered by itself
)

// An entry of a table takes sentBytes in a message, which has up to maxEntriesSent; only the last has fewer.
const (
	sentBytes      = 4
	maxEntriesSent = 30000
)

// start are the names of the tables, and the shape of those that the worker may ask for.
type start struct {
	Tables     []string
	Signatures bool // names of methods have them
}

// started is the answer to start.
type started struct {
	Failure string // "" when it can serve
}

// synchronize is a request to read a process's mappings, for it to be unwound.
type synchronize struct {
	ID        procscan.ProcessID // in our own pid namespace
	KernelPID uint32
	User      worker.User
}

// remove is a request to forget a process.
type remove struct {
	KernelPID uint32
}

// outcome is what a synchronization came to.
type outcome int

const (
	outcomeReady     outcome = iota // it can be unwound
	outcomeGone                     // it has ended
	outcomeNotReady                 // it has a JVM that is not ready, or of an unknown kind
	outcomeOverQuota                // it needs more than is left of its user's quotas; it is removed
	outcomeFailed
	outcomes
)

// synchronized is the answer to synchronize.
type synchronized struct {
	Outcome   outcome
	Failure   string // the first that explains the outcome
	Refused   string // why the functions of a runtime have no names, "" if they have
	Unknown   string // of a runtime in a version that was not tried; "" for none
	Skipped   uint64 // files that could not be read
	MapErrors uint64
	Full      bool // a table is that this worker will not clear: it does not have all files

	Uncorrected uint64 // files since the answer before, see deltas.Provider

	Code []byte // see sentCode
}

const (
	// maxFailureBytes bounds the text of an error.
	maxFailureBytes = 1 << 10

	// maxWords is more than the words of a stack that a last program keeps.
	maxWords = 1024

	// maxFrames bounds the frames of one stack: a word may stand for several, as calls are inlined.
	maxFrames = 1024

	// maxNameBytes bounds the name of a function or a source file.
	maxNameBytes = 512

	// maxStacksBytes bounds the stacks of a request, and their frames in an answer, below
	// worker.MaxMessageBytes. Some 30 stacks of a JVM have their frames in it.
	maxStacksBytes = 96 << 10
)

// errAnswer: a worker did not answer what it was asked.
var errAnswer = errors.New("unexpected answer of a worker")

// appendFramesRequest appends a request for the frames of as many stacks as it has room for, of the
// first at least, little endian:
//
//	0  u8   opFrames
//	1  u32  pid of the process in the initial pid namespace
//	5  each stack: u16 number of words, u64 words of the user stack, leaf first
func appendFramesRequest(b []byte, pid uint32, stacks [][]uint64) []byte {
	before := len(b)
	b = append(b, opFrames)
	b = binary.LittleEndian.AppendUint32(b, pid)
	for i, words := range stacks {
		if i > 0 && len(b)-before+2+8*len(words) > maxStacksBytes {
			break
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(words)))
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	return b
}

const framesHead = 5

// decodeFramesRequest decodes what appendFramesRequest has appended.
func decodeFramesRequest(b []byte) (pid uint32, stacks [][]uint64, err error) {
	size := len(b)
	malformed := func() (uint32, [][]uint64, error) {
		return 0, nil, fmt.Errorf("request of %d bytes for frames: %w", size, errAnswer)
	}
	if size < framesHead {
		return malformed()
	}
	pid, b = binary.LittleEndian.Uint32(b[1:]), b[framesHead:]
	for len(b) > 0 {
		if len(b) < 2 {
			return malformed()
		}
		n := int(binary.LittleEndian.Uint16(b))
		if b = b[2:]; n > maxWords || 8*n > len(b) {
			return malformed()
		}
		words := make([]uint64, n)
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		stacks, b = append(stacks, words), b[8*n:]
	}
	return pid, stacks, nil
}

// framesAnswer is the frames of stacks as the worker answers them, little endian:
//
//	0  u8   opFrames
//	1  u16  number of strings
//	3  each string: u16 length, bytes of UTF-8
//	   each stack: u8 1 if it is Named.Keep, u16 number of frames, u32 Span.Down, u32 Span.Up
//	     each frame: u8 kind, u16 function, u16 source file (indexes of strings), u32 line, u64 address
//
// The first string is "".
type framesAnswer struct {
	index   map[string]uint16
	strings []string
	size    int    // of what is there, with the strings
	body    []byte // the stacks
}

const stackHead, frameBytes = 11, 17

func newFramesAnswer() *framesAnswer {
	return &framesAnswer{index: map[string]uint16{"": 0}, strings: []string{""}, size: 5}
}

// add adds the frames of a stack, and reports false if there is no room for them. The first stack has
// room: where its frames have none, there is one CutFrame, as after maxFrames, and it is not to be kept.
func (a *framesAnswer) add(stack Named) bool {
	frames, keep, span := stack.Frames, byte(0), stack.Span
	if stack.Keep {
		keep = 1
	}
	size := a.size + stackHead + frameBytes // with a CutFrame
	fit := 0
	for ; fit < len(frames) && size <= maxStacksBytes; fit++ {
		size += frameBytes + a.stringSize(frames[fit].Function) + a.stringSize(frames[fit].SourceFile)
	}
	if size > maxStacksBytes {
		if len(a.body) > 0 {
			return false
		}
		fit--
	}
	if fit = min(fit, maxFrames); fit < len(frames) {
		frames, keep = append(slices.Clone(frames[:min(fit, maxFrames-1)]), Frame{Kind: CutFrame}), 0
		span = Span{}
	}
	a.size += stackHead + len(frames)*frameBytes
	a.body = append(a.body, keep)
	a.body = binary.LittleEndian.AppendUint16(a.body, uint16(len(frames)))
	a.body = binary.LittleEndian.AppendUint32(a.body, span.Down)
	a.body = binary.LittleEndian.AppendUint32(a.body, span.Up)
	for _, f := range frames {
		function, file := a.string(f.Function), a.string(f.SourceFile)
		a.body = append(a.body, byte(f.Kind))
		a.body = binary.LittleEndian.AppendUint16(a.body, function)
		a.body = binary.LittleEndian.AppendUint16(a.body, file)
		a.body = binary.LittleEndian.AppendUint32(a.body, f.Line)
		a.body = binary.LittleEndian.AppendUint64(a.body, f.Address)
	}
	return true
}

// stringSize returns how many bytes a string adds.
func (a *framesAnswer) stringSize(s string) int {
	if _, known := a.index[s]; known {
		return 0
	}
	return 2 + len(s)
}

func (a *framesAnswer) string(s string) uint16 {
	s = s[:min(len(s), maxNameBytes)]
	i, known := a.index[s]
	if !known {
		i = uint16(len(a.strings))
		a.index[s], a.strings, a.size = i, append(a.strings, s), a.size+2+len(s)
	}
	return i
}

// message returns the answer.
func (a *framesAnswer) message() []byte {
	b := make([]byte, 0, a.size)
	b = append(b, opFrames)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.strings)))
	for _, s := range a.strings {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return append(b, a.body...)
}

// decodeFrames decodes the answer to a request for the frames of a number of stacks, which may be bytes
// of any kind. It has those of the first at least.
func decodeFrames(b []byte, asked int) (stacks []Named, err error) {
	if len(b) < 3 || b[0] != opFrames {
		return nil, errAnswer
	}
	strings, b, err := decodeStrings(b[3:], int(binary.LittleEndian.Uint16(b[1:])))
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		if len(b) < stackHead || b[0] > 1 || len(stacks) == asked {
			return nil, errAnswer
		}
		keep, n := b[0] == 1, int(binary.LittleEndian.Uint16(b[1:]))
		span := Span{Down: binary.LittleEndian.Uint32(b[3:]), Up: binary.LittleEndian.Uint32(b[7:])}
		if b = b[stackHead:]; n > maxFrames || n*frameBytes > len(b) {
			return nil, errAnswer
		}
		frames := make([]Frame, n)
		for i := range frames {
			kind := FrameKind(b[0])
			function, file := int(binary.LittleEndian.Uint16(b[1:])), int(binary.LittleEndian.Uint16(b[3:]))
			if kind >= frameKinds || function >= len(strings) || file >= len(strings) {
				return nil, errAnswer
			}
			frames[i] = Frame{
				Kind: kind, Function: strings[function], SourceFile: strings[file],
				Line: binary.LittleEndian.Uint32(b[5:]), Address: binary.LittleEndian.Uint64(b[9:]),
			}
			b = b[frameBytes:]
		}
		stacks = append(stacks, Named{frames, keep, span})
	}
	if len(stacks) == 0 {
		return nil, errAnswer
	}
	return stacks, nil
}

// decodeStrings decodes the strings of an answer, and returns what comes after them.
func decodeStrings(b []byte, n int) (strings []string, rest []byte, err error) {
	for range n {
		if len(b) < 2 {
			return nil, nil, errAnswer
		}
		size := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		if size > maxNameBytes || size > len(b) || !utf8.Valid(b[:size]) {
			return nil, nil, errAnswer
		}
		strings, b = append(strings, string(b[:size])), b[size:]
	}
	return strings, b, nil
}
