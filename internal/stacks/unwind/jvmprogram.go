package unwind

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// While a compiled method makes its frame, or has removed it before it returns, the return address is not
// where the frame's size says. The module's program knows that of some instructions only: not of the poll
// between the end of the frame and the return (in JDK 17, not in 8), nor of the check that comes when the frame
// has been made, but counts as its making (in 17 with ZGC, in 21 with all collectors). It then
// takes for the caller what it finds in the frame, or above it. So on x86-64 it is told where the return
// address is, by instructions that are added to it where it reads
//
//   - what the JVM knows of a method: of the innermost frame, the frame is said to be complete from the
//     beginning on, after it was noted whether it is not, so that the program looks at the code;
//   - the code around the program counter: of instructions that are known, what it reads is replaced by
//     others, of which it knows what they mean.
//
// Of frames that are not the innermost, only the word where the return address has to be is looked at: methods that
// make calls have no more on their stacks than their frames. The program takes for it the first of six that is in code
// that the engine knows, which the code of the caller may not be yet.
//
// A method that has other words on its stack is known if it searches in texts: see jvmmoved.go. So is one that waits
// for a barrier: see jvmbarrier.go. Of stubs, see jvmstub.go, of virtual threads jvmthawed.go.

// What the program reads of the code begins a byte before the program counter.
const (
	jvmCodeBefore = 1
	jvmCodeBytes  = 14
)

// Instructions that the program looks for in the code.
const (
	x86Return = 0xc3
	x86PopRBP = 0x5d
	x86Leave  = 0xc9
)

// Labels of what is added.
const (
	jvmMethod     = "jvm_method"
	jvmMethodBack = "jvm_method_back"
	jvmCompared   = "jvm_method_code_start"
	jvmInnermost  = "jvm_method_innermost"
	jvmMethodDone = "jvm_method_done"
	jvmMethodKeep = "jvm_method_keep"
	jvmNoMethod   = "jvm_no_method"

	jvmRead     = "jvm_code"
	jvmReadBack = "jvm_code_back"
	jvmEnds     = "jvm_code_ends"
	jvmComplete = "jvm_code_complete"
	jvmFrame    = "jvm_code_frame"
	jvmNoFrame  = "jvm_code_no_frame"
	jvmReadDone = "jvm_code_done"
	jvmReadKeep = "jvm_code_keep"

	jvmLikeEnd   = "jvm_code_like_end"
	jvmBehindEnd = "jvm_code_behind_end"
	jvmNotNative = "jvm_code_not_native"

	jvmSearch     = "jvm_search"
	jvmSearchBack = "jvm_search_back"
	jvmSearchDone = "jvm_search_done"
)

// jvmStack is where the added instructions have what they need, from below the program's own stack on.
type jvmStack struct {
	key, record, address, incomplete, code, window int16
}

// jvmWindow is how many bytes of code are read before the program counter, and from it on.
const jvmWindow = 16

// jvmPlaces are where the added instructions find and keep things.
type jvmPlaces struct {
	stack   jvmStack
	offsets map[string]int16 // in the record, and in what is known of the process
	scratch int16            // in the record, of movedSpace bytes
}

// newJVMPlaces returns those of a program whose own stack ends there, with the offsets of some fields.
func newJVMPlaces(types *btf.Spec, end int16, fields map[string][]string) (p jvmPlaces, err error) {
	if p.offsets, err = readOffsets(types, fields); err != nil {
		return p, err
	}
	if p.scratch, err = movedScratch(types); err != nil {
		return p, err
	}
	end &^= 7
	p.stack = jvmStack{end - 8, end - 16, end - 24, end - 32, end - 40, end - 40 - 2*jvmWindow}
	if p.stack.window < -maxStackOffset {
		return p, errors.New("the unwinding program for JVMs has no room on its stack")
	}
	return p, nil
}

// addReturnAddresses adds the instructions to the program of JVMs.
func addReturnAddresses(instructions asm.Instructions, types *btf.Spec) (asm.Instructions, error) {
	p, err := newJVMPlaces(types, stackEnd(instructions), methodFields)
	if err != nil {
		return nil, err
	}
	for _, reading := range []struct {
		what, back string
		code       func(call asm.Instruction, p jvmPlaces) asm.Instructions
	}{
		{"scratch->codeblob", jvmMethodBack, methodCode},
		{"frame", jvmFrameReadBack, barrierCode},
		{"code", jvmReadBack, returnAddressCode},
		{"stack", jvmSearchBack, searchCode},
	} {
		instructions, err = replaceCall(instructions, "bpf_probe_read_user("+reading.what+",", reading.back,
			func(call asm.Instruction, _ int16) (asm.Instructions, error) { return reading.code(call, p), nil })
		if err != nil {
			return nil, err
		}
	}
	return addMovedStack(instructions, p), nil
}

// methodFields are those that the added instructions need.
var methodFields = map[string][]string{
	"PerCPURecord": {
		"trace.pid", "trace.ktime", "state.pc", "state.sp", "state.fp", "state.return_address",
		"hotspotUnwindScratch.codeblob",
	},
	"HotspotProcInfo": {
		"codeblob_codestart", "codeblob_framecomplete", "codeblob_framesize", "codeblob_name", "nmethod_uses_offsets",
	},
}

// methodCode returns the instructions at the reading of a method.
func methodCode(call asm.Instruction, p jvmPlaces) asm.Instructions {
	stack, offsets, scratch := p.stack, p.offsets, p.scratch
	method := offsets["hotspotUnwindScratch.codeblob"]
	return slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, stack.address, asm.R3, asm.DWord).WithSymbol(jvmMethod),
		call.WithMetadata(asm.Metadata{}),
		asm.JNE.Imm(asm.R0, 0, jvmMethodKeep),
		// r0 = the record
		asm.StoreImm(asm.RFP, stack.key, 0, asm.Word),
		asm.StoreImm(asm.RFP, stack.incomplete, 0, asm.Word),
	}, lookUp(recordsMap, stack.key, jvmNoMethod), asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, offsets["state.return_address"], asm.Byte),
		asm.JEq.Imm(asm.R1, 0, jvmInnermost),
		// of the others, those that a barrier has interrupted
		asm.LoadMem(asm.R1, asm.R0, offsets["state.pc"], asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, scratch+barrierCaller, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, jvmMethodDone),
		asm.LoadMem(asm.R1, asm.R0, offsets["trace.ktime"], asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, scratch+barrierTime, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, jvmMethodDone),
		asm.StoreImm(asm.R0, scratch+movedWords, 1, asm.Word),
		asm.StoreMem(asm.RFP, stack.record, asm.R0, asm.DWord).WithSymbol(jvmInnermost),
		// the code around the program counter, for stubSize
		asm.LoadMem(asm.R3, asm.R0, offsets["state.pc"], asm.DWord),
		asm.Sub.Imm(asm.R3, 4),
	}, readToStack(stack.window, 8), asm.Instructions{
		// r0 = what is known of the process
		asm.LoadMem(asm.R0, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["trace.pid"], asm.Word),
		asm.StoreMem(asm.RFP, stack.key, asm.R1, asm.Word),
	}, lookUp(hotspotMap, stack.key, jvmNoMethod), asm.Instructions{
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		// the frame's size, with the words by which rsp was moved
		asm.LoadMem(asm.R2, asm.R0, offsets["codeblob_framesize"], asm.Byte),
		asm.Add.Reg(asm.R2, asm.R5),
		asm.LoadMem(asm.R1, asm.R2, method, asm.Word),
	}, stubSize(stack), asm.Instructions{
		asm.LoadMem(asm.R3, asm.R5, scratch+movedWords, asm.Word).WithSymbol(jvmSized),
		asm.JGT.Imm(asm.R3, movedBytes/8, jvmNoMethod),
		asm.Add.Reg(asm.R1, asm.R3),
		asm.StoreMem(asm.R2, method, asm.R1, asm.Word),
		// r3 = the offset at which the frame is complete: from here on, the beginning
		asm.LoadMem(asm.R2, asm.R0, offsets["codeblob_framecomplete"], asm.Byte),
		asm.Add.Reg(asm.R2, asm.R5),
		asm.LoadMem(asm.R3, asm.R2, method, asm.Half),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R2, method, asm.R1, asm.Half),
		// r4 = the start of the code
		asm.LoadMem(asm.R2, asm.R0, offsets["codeblob_codestart"], asm.Byte),
		asm.Add.Reg(asm.R2, asm.R5),
		asm.LoadMem(asm.R4, asm.R2, method, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, offsets["nmethod_uses_offsets"], asm.Byte),
		asm.JEq.Imm(asm.R1, 0, jvmCompared),
		asm.LSh.Imm(asm.R4, 32),
		asm.RSh.Imm(asm.R4, 32),
		asm.LoadMem(asm.R1, asm.RFP, stack.address, asm.DWord),
		asm.Add.Reg(asm.R4, asm.R1),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.pc"], asm.DWord).WithSymbol(jvmCompared),
		asm.Sub.Reg(asm.R1, asm.R4),
		asm.JGE.Reg(asm.R1, asm.R3, jvmMethodDone),
		asm.StoreImm(asm.RFP, stack.incomplete, 1, asm.Word),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(jvmMethodDone),
		asm.Ja.Label(jvmMethodBack).WithSymbol(jvmMethodKeep),
		asm.Mov.Imm(asm.R0, 1).WithSymbol(jvmNoMethod),
		asm.Ja.Label(jvmMethodBack),
	})
}

// lookUp returns instructions that read a table at the 4-byte key on the stack: r0 is what it has. They go to a label
// if it has nothing.
func lookUp(table string, key int16, missing string) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, int32(key)),
		asm.LoadMapPtr(asm.R1, 0).WithReference(table),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, missing),
	}
}

// lookUpRecord returns instructions that read the record of this CPU, with such a key.
func lookUpRecord(key int16, missing string) asm.Instructions {
	return append(asm.Instructions{asm.StoreImm(asm.RFP, key, 0, asm.Word)}, lookUp(recordsMap, key, missing)...)
}

// lookUpProcess returns instructions that read a table at the process of the record, r0, which they put on the stack.
func lookUpProcess(table string, record, key, pid int16, missing string) asm.Instructions {
	return append(asm.Instructions{
		asm.StoreMem(asm.RFP, record, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, pid, asm.Word),
		asm.StoreMem(asm.RFP, key, asm.R1, asm.Word),
	}, lookUp(table, key, missing)...)
}

// readToStack returns instructions that read so many bytes of the process from r3 on: r0 is 0 unless that fails.
func readToStack(to int16, size int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, int32(to)),
		asm.FnProbeReadUser.Call(),
	}
}

// jvmSearched are the words of the stack that the program searches for a return address.
const jvmSearched = 6

// searchCode returns the instructions at the reading of these.
func searchCode(call asm.Instruction, p jvmPlaces) asm.Instructions {
	stack := p.stack
	code := slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, stack.code, asm.R1, asm.DWord).WithSymbol(jvmSearch),
		call.WithMetadata(asm.Metadata{}),
	}, lookUpRecord(stack.key, jvmSearchDone), asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, p.offsets["state.return_address"], asm.Byte),
		asm.JEq.Imm(asm.R1, 0, jvmSearchDone),
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.Mov.Imm(asm.R2, 0),
	})
	for i := int16(1); i < jvmSearched; i++ {
		code = append(code, asm.StoreMem(asm.R1, 8*i, asm.R2, asm.DWord))
	}
	return append(code, asm.Ja.Label(jvmSearchBack).WithSymbol(jvmSearchDone))
}

// returnAddressCode returns the instructions at the reading of the code.
func returnAddressCode(call asm.Instruction, p jvmPlaces) asm.Instructions {
	stack := p.stack
	code := slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, stack.code, asm.R1, asm.DWord).WithSymbol(jvmRead),
		asm.StoreMem(asm.RFP, stack.address, asm.R3, asm.DWord),
		call.WithMetadata(asm.Metadata{}),
		asm.JNE.Imm(asm.R0, 0, jvmReadKeep),
		asm.LoadMem(asm.R3, asm.RFP, stack.address, asm.DWord),
		asm.Add.Imm(asm.R3, jvmCodeBefore-jvmWindow),
	}, readToStack(stack.window, 2*jvmWindow), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, jvmReadDone),
		// r1 = what the program has read, r2 = the 8 bytes before the program counter, r3 = those from it on
		asm.LoadMem(asm.R1, asm.RFP, stack.code, asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stack.window+jvmWindow-8, asm.DWord),
		asm.LoadMem(asm.R3, asm.RFP, stack.window+jvmWindow, asm.DWord),
		asm.LoadMem(asm.R4, asm.RFP, stack.incomplete, asm.Word),
		asm.JEq.Imm(asm.R4, 0, jvmEnds),
	})
	// bytesAre goes to a label if 3 bytes of a register are some, in the order of addresses.
	bytesAre := func(of asm.Register, from int32, a, b, c byte, label string) {
		code = append(code,
			asm.Mov.Reg(asm.R4, of),
			asm.RSh.Imm(asm.R4, 8*from),
			asm.And.Imm(asm.R4, 0xffffff),
			asm.JEq.Imm(asm.R4, int32(a)|int32(b)<<8|int32(c)<<16, label))
	}
	// before goes to a label if 3 bytes are some so far before the program counter.
	before := func(distance int32, a, b, c byte, label string) { bytesAre(asm.R2, 8-distance, a, b, c, label) }
	at := func(a, b, c byte, label string) { bytesAre(asm.R3, 0, a, b, c, label) }

	// The frame is being made: push rbp; (mov rbp, rsp;) sub rsp, N; or sub rsp, N; mov [rsp+N], rbp. Then comes
	// cmp dword [r15+x], N; jne; or a call.
	at(0x41, 0x81, 0x7f, jvmComplete)
	at(0x41, 0x83, 0x7f, jvmComplete)
	at(0x41, 0x81, 0xbf, jvmComplete)
	at(0x41, 0x83, 0xbf, jvmComplete)
	before(8, 0x41, 0x81, 0x7f, jvmComplete)
	before(5, 0x41, 0x83, 0x7f, jvmComplete)
	before(8, 0x41, 0x83, 0xbf, jvmComplete)
	at(0x48, 0x89, 0x6c, jvmComplete)
	at(0x48, 0x89, 0xac, jvmComplete)
	at(0x48, 0x8b, 0xec, jvmFrame)
	at(0x48, 0x89, 0xe5, jvmFrame)
	before(3, 0x48, 0x8b, 0xec, jvmFrame)
	before(3, 0x48, 0x89, 0xe5, jvmFrame)
	code = append(code,
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.And.Imm(asm.R4, 0xff),
		asm.JEq.Imm(asm.R4, 0xe8, jvmComplete),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.RSh.Imm(asm.R4, 56),
		asm.JEq.Imm(asm.R4, 0x55, jvmFrame),
		asm.LoadMem(asm.R4, asm.RFP, stack.window+jvmWindow-12, asm.Word),
		asm.RSh.Imm(asm.R4, 8),
		asm.JEq.Imm(asm.R4, 0xbf8141, jvmComplete),
		asm.Ja.Label(jvmNoFrame))
	// It is removed: pop rbp; cmp rsp, [r15+x]; ja; ret. No other code of methods pops rbp.
	ends := len(code)
	at(0x49, 0x3b, 0xa7, jvmNoFrame)
	at(0x49, 0x3b, 0x67, jvmNoFrame)
	code = append(code,
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.And.Imm(asm.R4, 0xff),
		asm.JEq.Imm(asm.R4, x86PopRBP, jvmFrame),
		asm.JEq.Imm(asm.R4, x86Return, jvmReadDone),
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.And.Imm(asm.R4, 0xffff),
		asm.JNE.Imm(asm.R4, 0x870f, jvmLikeEnd))
	before(7, 0x49, 0x3b, 0xa7, jvmNoFrame)
	before(4, 0x49, 0x3b, 0x67, jvmNoFrame)
	code[ends] = code[ends].WithSymbol(jvmEnds)
	// Behind add rsp, x; pop rbp it is, whatever comes: also a jump to what goes on with an exception, or a poll that
	// is far away.
	code = append(code,
		asm.Ja.Label(jvmReadDone),
		asm.Mov.Reg(asm.R4, asm.R2).WithSymbol(jvmLikeEnd),
		asm.RSh.Imm(asm.R4, 56),
		asm.JEq.Imm(asm.R4, x86Leave, jvmBehindEnd),
		asm.JNE.Imm(asm.R4, x86PopRBP, jvmReadDone))
	before(5, 0x48, 0x83, 0xc4, jvmNoFrame)
	before(8, 0x48, 0x81, 0xc4, jvmNoFrame)
	// Without that, the program takes it for removed behind a byte like pop rbp or leave, if a byte like ret comes: in
	// movsxd rcx, ecx; ...; imul rax, rbx it is not, nor in test ecx, ecx; jne; mov eax, ebx. Behind the real ones come
	// test eax, [rip+x]; ret (JDK 8 and 11); mov r10, [r15+x]; test [r10], eax; ret (11); or cmp qword [r15+x], 0; jne;
	// ret (of a native method).
	bytesAre(asm.R3, 5, 0x85, 0x02, x86Return, jvmReadDone)
	code[len(code)-4] = code[len(code)-4].WithSymbol(jvmBehindEnd)
	code = append(code, asm.LoadMem(asm.R5, asm.RFP, stack.window+jvmWindow+8, asm.DWord)) // from the ninth byte on
	bytesAre(asm.R5, 0, 0x85, 0x02, x86Return, jvmReadDone)
	code = append(code,
		asm.RSh.Imm(asm.R5, 24),
		asm.And.Imm(asm.R5, 0xff),
		asm.JNE.Imm(asm.R5, x86Return, jvmNotNative))
	at(0x49, 0x83, 0x7f, jvmReadDone)
	code = append(code,
		asm.Mov.Reg(asm.R4, asm.R3).WithSymbol(jvmNotNative),
		asm.RSh.Imm(asm.R4, 48),
		asm.And.Imm(asm.R4, 0xff),
		asm.JNE.Imm(asm.R4, x86Return, jvmComplete),
		asm.And.Imm(asm.R3, 0xffff),
		asm.JEq.Imm(asm.R3, 0x0585, jvmReadDone))

	// What the program is to take the code for: nothing that it knows, pop rbp; ret, or ret.
	store := func(offset int16, instruction byte) {
		code = append(code, asm.StoreImm(asm.R1, offset, int64(instruction), asm.Byte))
	}
	complete := len(code)
	for i := int16(jvmCodeBefore); i < jvmCodeBytes; i++ {
		store(i, 0)
	}
	code[complete] = code[complete].WithSymbol(jvmComplete)
	code = append(code, asm.Ja.Label(jvmReadDone))
	frame := len(code)
	store(jvmCodeBefore, x86PopRBP)
	store(jvmCodeBefore+1, x86Return)
	code[frame] = code[frame].WithSymbol(jvmFrame)
	code = append(code, asm.Ja.Label(jvmReadDone))
	noFrame := len(code)
	store(jvmCodeBefore, x86Return)
	code[noFrame] = code[noFrame].WithSymbol(jvmNoFrame)
	return append(code,
		asm.Mov.Imm(asm.R0, 0).WithSymbol(jvmReadDone),
		asm.Ja.Label(jvmReadBack).WithSymbol(jvmReadKeep))
}
