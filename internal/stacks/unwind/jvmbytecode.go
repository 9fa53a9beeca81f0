package unwind

import (
	"encoding/binary"
	"slices"
)

// opcode is an instruction of byte code: its number, and whether it would jump forward.
type opcode struct {
	number  byte
	forward bool
}

// Numbers of byte codes (Java Virtual Machine Specification, chapter 6).
const (
	iastore, aastore, sastore = 79, 83, 86
	iadd, dcmpg               = 96, 152
	ifeq, ifAcmpne            = 153, 166
	goTo, jsr, ret            = 167, 168, 169
	tableswitch, lookupswitch = 170, 171
	invokevirtual             = 182
	invokedynamic             = 186
	wide, iinc                = 196, 132
	ifnull, ifnonnull         = 198, 199
	gotoW, jsrW               = 200, 201
)

func (o opcode) isIf() bool {
	return o.number >= ifeq && o.number <= ifAcmpne || o.number == ifnull || o.number == ifnonnull
}

// isForwardIf leaves out goto and jumps back, whose notes other instructions get.
func (o opcode) isForwardIf() bool { return o.isIf() && o.forward }

// isPrimitiveStore leaves out stores of references, which have barriers.
func (o opcode) isPrimitiveStore() bool {
	return o.number >= iastore && o.number <= sastore && o.number != aastore
}

func (o opcode) isArithmetic() bool { return o.number >= iadd && o.number <= dcmpg }

// The JVM's own byte codes, which it writes over others of the same length: those of fields, loads of locals, and
// switches (class Bytecodes; they are the same from JDK 8u to 25).
const (
	fastFields, fastAload0 = 203, 220
	fastIload, fastInvoke  = 224, 227
	fastLinearswitch       = 228
	fastBinaryswitch       = 229
	fastAldc, fastAldcW    = 230, 231
	fastReturn, fastHandle = 232, 233
	nofastGetfield         = 234
	nofastPutfield         = 235
	nofastAload0           = 236
	nofastIload            = 237
)

// lengths are those of the byte codes up to jsr_w; 0: not always the same.
const lengths = "1111111111111111" + "23233" + "22222" + "1111111111111111111111111111" + "22222" +
	"1111111111111111111111111111" + "111111111" + "111111111111111111111111111111111111" + "3" +
	"11111111111111111111" + "3333333333333333" + "2" + "00" + "111111" + "3333333" + "55" + "3" + "2" + "3" + "11" +
	"33" + "11" + "0" + "4" + "33" + "55"

// byteCode is what is known of the byte code of a method.
type byteCode struct {
	known bool       // all of it is understood
	back  [][2]int32 // jumps back: from, to
	calls []int32    // where methods are called
}

// readByteCode follows byte code.
func readByteCode(code []byte) byteCode {
	var b byteCode
	starts := make([]bool, len(code))
	var targets []int32
	jump := func(from, by int32) {
		targets = append(targets, from+by)
		if by <= 0 {
			b.back = append(b.back, [2]int32{from, from + by})
		}
	}
	at := 0
	for at < len(code) {
		starts[at] = true
		var rest [8]byte
		copy(rest[:], code[at:])
		op := opcode{number: rest[0]}
		size := 0
		switch {
		case op.number == tableswitch, op.number == lookupswitch, op.number == fastLinearswitch,
			op.number == fastBinaryswitch:
			table := at/4*4 + 4 // after the padding
			if table+12 > len(code) {
				return byteCode{}
			}
			word := func(n int) int32 { return int32(binary.BigEndian.Uint32(code[table+4*n:])) }
			n, step, end := int(word(1)), 2, 8
			if op.number == tableswitch {
				n, step, end = int(word(2))-int(word(1))+1, 1, 12
			}
			if end += 4 * step * n; n < 0 || n > len(code) || table+end > len(code) {
				return byteCode{}
			}
			jump(int32(at), word(0))
			for i := range n {
				jump(int32(at), word(3+step*i))
			}
			size = table + end - at
		case op.number == wide:
			if size = 4; rest[1] == iinc {
				size = 6
			}
		case int(op.number) < len(lengths):
			size = int(lengths[op.number] - '0')
		default:
			size = rewrittenLength(op.number)
		}
		if size == 0 || op.number == jsr || op.number == jsrW || op.number == ret {
			return byteCode{}
		}
		switch {
		case op.isIf(), op.number == goTo:
			jump(int32(at), int32(int16(binary.BigEndian.Uint16(rest[1:]))))
		case op.number == gotoW:
			jump(int32(at), int32(binary.BigEndian.Uint32(rest[1:])))
		case op.number >= invokevirtual && op.number <= invokedynamic, op.number == fastInvoke, op.number == fastHandle:
			b.calls = append(b.calls, int32(at))
		}
		at += size
	}
	for _, target := range targets {
		if target < 0 || int(target) >= len(code) || !starts[target] {
			return byteCode{}
		}
	}
	b.known = at == len(code)
	return b
}

// rewrittenLength returns the length of one of the JVM's own byte codes, 0 if it is not known.
func rewrittenLength(number byte) int {
	switch {
	case number >= fastFields && number < fastAload0, number == fastInvoke, number == fastAldcW, number == fastHandle,
		number == nofastGetfield, number == nofastPutfield:
		return 3
	case number >= fastIload && number < fastInvoke, number == fastAldc, number == nofastIload:
		return 2
	case number >= fastAload0 && number < fastIload, number == fastReturn, number == nofastAload0:
		return 1 // also where it stands for more than one, which follow it unchanged
	}
	return 0
}

// repeats reports whether a method may come to one of its byte codes again.
func (b *byteCode) repeats(bci int32) bool {
	for _, back := range b.back {
		if back[1] <= bci && bci <= back[0] {
			return true
		}
	}
	return !b.known
}

// byteCodeLoop is a loop of a method: from where it begins to the last of so many jumps back to there.
type byteCodeLoop struct {
	begin, end int32
	jumps      int
}

// loopsAround returns the loops in which some byte code is, the outermost first.
func (b *byteCode) loopsAround(from, to int32) (loops []byteCodeLoop) {
	for _, back := range b.back {
		i, found := slices.BinarySearchFunc(loops, back[1], func(l byteCodeLoop, begin int32) int {
			return int(l.begin - begin)
		})
		if !found {
			loops = slices.Insert(loops, i, byteCodeLoop{begin: back[1]})
		}
		loops[i].end = max(loops[i].end, back[0])
		loops[i].jumps++
	}
	return slices.DeleteFunc(loops, func(l byteCodeLoop) bool { return l.begin > from || l.end < to })
}

// callsIn reports whether a method may call others in some of its byte code.
func (b *byteCode) callsIn(from, to int32) bool { return b.callsOthers(from, to, nil) }

// callsOthers is callsIn without some calls.
func (b *byteCode) callsOthers(from, to int32, except []int32) bool {
	return !b.known || slices.ContainsFunc(b.calls, func(at int32) bool {
		return from <= at && at <= to && !slices.Contains(except, at)
	})
}
