package unwind

import (
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// The second variable of a JVM's word is, from the highest bit on: 4 bits for its kind, 28 for the offset in
// the code or the index in the byte code, 32 to check the pointer in the first.
func kindOf(word libpf.EbpfFrame) uint8 { return uint8(word.Variable(1) >> 60) }

func codeOffset(word libpf.EbpfFrame) int32 { return int32(word.Variable(1) >> 32 & maxCodeOffset) }

const maxCodeOffset = 1<<28 - 1

func withOffset(word libpf.EbpfFrame, offset uint32) libpf.EbpfFrame {
	const mask = uint64(maxCodeOffset) << 32
	return libpf.EbpfFrame{word[0], word[1], word[2]&^mask | uint64(offset)<<32}
}

// inCompiled reports whether a word is of a place in a compiled method.
func inCompiled(word libpf.EbpfFrame) bool { return kindOf(word) == support.FrameHotspotNative }

// hasCompileID reports whether the number of the method is in it.
func hasCompileID(word libpf.EbpfFrame) bool {
	return inCompiled(word) && uint32(word.Variable(1)) != 0
}

// MaxWord is the length of the longest word.
const MaxWord = 3

// NextWord returns the first word of a stack's, and the rest; nil if there is none, or it is malformed: the stack
// cannot be named from there on.
func NextWord(words []uint64) (word, rest []uint64) {
	if len(words) == 0 {
		return nil, nil
	}
	size := int(libpf.EbpfFrame(words).Length())
	if size == 0 || size > min(len(words), MaxWord) {
		return nil, nil
	}
	return words[:size], words[size:]
}

// Place returns where in its code a word is, and the word without that: of a place in native code, of which the address
// is as much greater as the place, or in compiled code of a JVM. Other words have none.
func Place(word []uint64) (of [MaxWord]uint64, at uint64, is bool) {
	w := libpf.EbpfFrame(word)
	copy(of[:], w)
	switch {
	case w.Flags().Error():
	case w.Type() == libpf.NativeFrame && len(w) >= 2:
		of[0] -= w.Data()
		return of, w.Data(), true
	case w.Type() == libpf.HotSpotFrame && len(w) == MaxWord && hasCompileID(w) && !w.Flags().ReturnAddress():
		copy(of[:], withOffset(w, 0))
		return of, uint64(codeOffset(w)), true
	}
	return of, 0, false
}

// Life is how long a word has the same frames.
type Life uint8

const (
	OfMoment   Life = iota // it is an address at which there may be something else, see Lasting
	OfMappings             // while the same files are mapped at the same places
	OfProgram              // while the process runs its program
)

// LifeOf returns the Life of a word of NextWord's.
func LifeOf(word []uint64) Life {
	w := libpf.EbpfFrame(word)
	switch {
	case w.Flags().Error():
	case w.Type() == libpf.NativeFrame:
		return OfMappings
	case w.Type() == libpf.HotSpotFrame && len(w) == MaxWord && hasCompileID(w), isPHP(w) && len(w) == runtimeWords:
		return OfProgram
	}
	return OfMoment
}

// Lasting reports whether words mean the same as long as the process runs its program. In compiled code of a
// JVM they have a number that is never given again. Those of interpreted code are only addresses: when a class
// is unloaded, another one may come to them. (So are those of stubs, of which a JVM frees hardly any.) Words of PHP
// have a hash of what names the function; of other runtimes all are taken for addresses.
func Lasting(words []uint64) bool { return interpretedAt(words) < 0 }

// Compiled returns the words before the first of interpreted code: see Lasting.
func Compiled(words []uint64) []uint64 {
	if at := interpretedAt(words); at >= 0 {
		return words[:at]
	}
	return words
}

// Placed returns the words of a stack; if those of PHP are not in their places, the words before them. PHP's functions
// are walked where the stack has PHP's interpreter (execute_ex), up to the one with which it was entered. When C code
// has made a call (zend_call_function) and has not entered the interpreter yet, the called function is found where its
// caller's are to be, theirs where their caller's are, and so on: in a whole stack, the last function that is found was
// called by another. When such a call has ended and has not left the interpreter yet, all functions are found in its
// place, and once more in theirs.
func Placed(words []uint64, isWhole bool) []uint64 {
	first, isCalled, isOutermost := -1, false, false
	for at := 0; at < len(words); {
		word := libpf.EbpfFrame(words[at:])
		size := int(word.Length())
		if size == 0 || size > len(word) || word.Flags().Error() {
			isWhole = false
			break
		}
		if isPHP(word) && size == runtimeWords {
			if first < 0 {
				first = at
			}
			if isOutermost {
				return words[:first]
			}
			typeInfo := uint32(word.Variable(1) >> 32)
			isUser := word.Variable(0) != 0 && phpHashOf(typeInfo) != 0
			isCalled, isOutermost = isUser && typeInfo&phpCalled != 0, isUser && typeInfo&phpCalled == 0
		}
		at += size
	}
	if isCalled && isWhole {
		return words[:first]
	}
	return words
}

func isPHP(word libpf.EbpfFrame) bool {
	return word.Type() == libpf.PHPFrame || word.Type() == libpf.PHPJITFrame
}

// interpretedAt returns where the first word of interpreted code is, -1 for nowhere.
func interpretedAt(words []uint64) int {
	for at := 0; at < len(words); {
		word := libpf.EbpfFrame(words[at:])
		size := int(word.Length())
		if size == 0 || size > len(word) {
			return -1 // it cannot be named from here on
		}
		switch {
		case word.Flags().Error(): // it has no address
		case size >= 3 && word.Type() == libpf.HotSpotFrame && kindOf(word) == support.FrameHotspotInterpreter,
			runtimeOfWord(word) != nil && !isPHP(word):
			return at
		}
		at += size
	}
	return -1
}
