package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"correlator/procscan"
)

// A message begins with a byte that says what it is. The agent has one request under way at a time,
// and the worker answers each once; before that it may ask for tables.
const (
	opStart       = 'H' // start, with the descriptors of the tables in their order; answered by itself and started
	opSynchronize = 'S' // synchronize; answered by itself and synchronized
	opRemove      = 'R' // remove; answered by itself
	opFrames      = 'F' // see appendFramesRequest; answered by itself and frames, see appendFrames

	opTable        = 'M' // the worker asks for a table of 1<<n entries, n the second byte; answered by itself
	opTableRefused = 'N' // and a descriptor, or by this
)

// start are the names of the tables, and the shape of those that the worker may ask for.
type start struct {
	Tables []string
}

// started is the answer to start.
type started struct {
	Failure string // "" when it can serve
}

// synchronize is a request to read a process's mappings, for it to be unwound.
type synchronize struct {
	ID        procscan.ProcessID // in our own pid namespace
	KernelPID uint32
	User      string // who may influence what is found in files and memory of its processes
}

// remove is a request to forget a process.
type remove struct {
	KernelPID uint32
}

// outcome is what a synchronization came to.
type outcome int

const (
	outcomeReady    outcome = iota // it can be unwound
	outcomeGone                    // it has ended
	outcomeNotReady                // it has a JVM that is not ready, or of an unknown kind
	outcomeFailed
	outcomes
)

// synchronized is the answer to synchronize.
type synchronized struct {
	Outcome   outcome
	Failure   string // the first that explains the outcome
	Skipped   uint64 // files that could not be read
	MapErrors uint64
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

	// maxAnswerBytes bounds the frames of a stack in an answer, below worker.MaxMessageBytes.
	maxAnswerBytes = 96 << 10
)

// errAnswer: a worker did not answer what it was asked.
var errAnswer = errors.New("unexpected answer of a worker")

// appendFramesRequest appends a request for the frames of a stack, little endian:
//
//	0  u8   opFrames
//	1  u32  pid of the process in the initial pid namespace
//	5  u32  tid, likewise
//	9  u64  words of the user stack, leaf first
func appendFramesRequest(b []byte, pid, tid uint32, words []uint64) []byte {
	b = append(b, opFrames)
	b = binary.LittleEndian.AppendUint32(b, pid)
	b = binary.LittleEndian.AppendUint32(b, tid)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

const framesHead = 9

// decodeFramesRequest decodes what appendFramesRequest has appended.
func decodeFramesRequest(b []byte) (pid, tid uint32, words []uint64, err error) {
	if len(b) < framesHead || (len(b)-framesHead)%8 != 0 || len(b) > framesHead+8*maxWords {
		return 0, 0, nil, fmt.Errorf("request of %d bytes for frames: %w", len(b), errAnswer)
	}
	words = make([]uint64, (len(b)-framesHead)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[framesHead+8*i:])
	}
	return binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:]), words, nil
}

// appendFrames appends the frames of a stack as the worker answers them, little endian:
//
//	0  u8   opFrames
//	1  u16  number of strings
//	3  u16  number of frames
//	5  each string: u16 length, bytes of UTF-8
//	   each frame: u8 kind, u16 function, u16 source file (indexes of strings), u32 line, u64 address
//
// The first string is "". Frames that do not fit are replaced by one CutFrame.
func appendFrames(b []byte, frames []Frame) []byte {
	index := map[string]uint16{"": 0}
	table := []string{""}
	size := framesHead
	add := func(s string) uint16 {
		s = s[:min(len(s), maxNameBytes)]
		i, known := index[s]
		if !known {
			i = uint16(len(table))
			index[s], table, size = i, append(table, s), size+2+len(s)
		}
		return i
	}
	var body []byte
	count := 0
	for i, f := range frames {
		room := len(f.Function) + len(f.SourceFile) + 2*frameBytes
		if i < len(frames)-1 && count == maxFrames-1 || size+len(body)+room > maxAnswerBytes {
			f = Frame{Kind: CutFrame}
		}
		function, file := add(f.Function), add(f.SourceFile)
		body = append(body, byte(f.Kind))
		body = binary.LittleEndian.AppendUint16(body, function)
		body = binary.LittleEndian.AppendUint16(body, file)
		body = binary.LittleEndian.AppendUint32(body, f.Line)
		body = binary.LittleEndian.AppendUint64(body, f.Address)
		count++
		if f.Kind == CutFrame && frames[i].Kind != CutFrame {
			break
		}
	}
	b = append(b, opFrames)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(table)))
	b = binary.LittleEndian.AppendUint16(b, uint16(count))
	for _, s := range table {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return append(b, body...)
}

const frameBytes = 17

// decodeFrames decodes an answer, which may be bytes of any kind, and appends its frames to dst.
func decodeFrames(dst []Frame, b []byte) ([]Frame, error) {
	if len(b) < 5 || b[0] != opFrames {
		return dst, errAnswer
	}
	strings, frames := int(binary.LittleEndian.Uint16(b[1:])), int(binary.LittleEndian.Uint16(b[3:]))
	if frames > maxFrames || strings > 2*maxFrames+1 {
		return dst, errAnswer
	}
	b = b[5:]
	table := make([]string, 0, strings)
	for range strings {
		if len(b) < 2 {
			return dst, errAnswer
		}
		size := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		if size > maxNameBytes || size > len(b) || !utf8.Valid(b[:size]) {
			return dst, errAnswer
		}
		table, b = append(table, string(b[:size])), b[size:]
	}
	if len(b) != frames*frameBytes {
		return dst, errAnswer
	}
	for ; len(b) > 0; b = b[frameBytes:] {
		kind := FrameKind(b[0])
		function, file := int(binary.LittleEndian.Uint16(b[1:])), int(binary.LittleEndian.Uint16(b[3:]))
		if kind >= frameKinds || function >= len(table) || file >= len(table) {
			return dst, errAnswer
		}
		dst = append(dst, Frame{
			Kind: kind, Function: table[function], SourceFile: table[file],
			Line: binary.LittleEndian.Uint32(b[5:]), Address: binary.LittleEndian.Uint64(b[9:]),
		})
	}
	return dst, nil
}
