package unwind

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The module's program hands over, for a function of PHP, the address of what describes it (zend_function) and a line.
// PHP frees these at the end of a request at the latest, and the next one's come to the same addresses: whoever reads
// there later finds another name. So in the upper half of the word's second variable, of which the module needs one
// bit (type_info), instructions that are added to the program put a hash of what names the function there and then:
// its name, its class's, its file's, and the lines it is from and to. The frame has a name only if what is read later
// has the same hash. Another bit says whether the function was called by another one: see Placed.
//
// The line is that of the instruction that PHP has written down, which it does where there may be an exception or a
// call. In the innermost function that can be long ago, or, before the first, of what was at the same place of PHP's
// stack. If the code that runs is the interpreter's, the instruction is in a register (ZEND_VM_IP_GLOBAL_REG), but for
// the beginning and the end of a call, when it is of another function. So in the innermost function, an instruction has
// a line only if it is one of that function's, and compiled code has none. A line that cannot be read is none, instead
// of the end of the stack.

// phpProgram is the program of PHP, and phpTable its table.
const (
	phpProgram = "perf_unwind_php"
	phpTable   = "php_procs"
)

// In PHP's structures since 7.4.
const (
	zendFunctionName = 8  // in zend_function, followed by the class
	zendClassName    = 8  // in zend_class_entry
	zendStringLength = 16 // in zend_string, followed by the characters
	zendStringChars  = 24
	zendFileLines    = 8 // from the file in zend_function: the first line, and the last

	// Where support.PHPProcInfo has nothing: where the file is in zend_function, and the number of instructions,
	// behind which is where they are.
	phpFileInProcInfo, phpOplinesInProcInfo = 22, 23

	zendOplineShift = 5 // the size of an instruction (zend_op)
)

const (
	// phpTextBytes is more than what is hashed of the end of a text.
	phpTextBytes = 128

	// phpHashMultiplier is odd: no two values of a word give the same product.
	phpHashMultiplier = 0x9e3779b97f4a7c15

	// phpTop is the bit of type_info that the module's program needs: whether the interpreter was entered with the
	// function (ZEND_CALL_TOP). phpCalled is put before it.
	phpTop, phpCalled = 1 << 17, 1 << 16

	phpHashBits = 30
)

// Labels of what is added.
const (
	phpFunction     = "php_function"
	phpFunctionBack = "php_function_back"
	phpOpline       = "php_opline"
	phpOplineBack   = "php_opline_back"
	phpOplineSaved  = "php_opline_saved"
	phpOplineNone   = "php_opline_none"
	phpOplineDone   = "php_opline_done"
	phpOplineKeep   = "php_opline_keep"
	phpLine         = "php_line"
	phpLineBack     = "php_line_back"
	phpCheck        = "php_check"
	phpCheckBack    = "php_check_back"
	phpCheckClass   = "php_check_class"
	phpCheckCalled  = "php_check_called"
	phpCheckHashed  = "php_check_hashed"
	phpCheckFailed  = "php_check_failed"
	phpCheckKeep    = "php_check_keep"
)

// phpStack is where the added instructions have what they need, below the program's own stack.
type phpStack struct{ key, record, function, call, to, hash, at int16 }

// addFunctionChecks adds the instructions to the program of PHP.
func addFunctionChecks(instructions asm.Instructions, types *btf.Spec) (asm.Instructions, error) {
	offsets, err := readOffsets(types, map[string][]string{
		"PerCPURecord": {
			"trace.pid", "phpUnwindState.zend_execute_data", "pythonUnwindScratch.frame", "pythonUnwindScratch.code",
			"state.return_address", "state.text_section_id", "state." + phpOplineRegister,
		},
		"PHPProcInfo": {"current_execute_data", "zend_execute_data_prev_execute_data"},
	})
	if err != nil {
		return nil, err
	}
	end := stackEnd(instructions) &^ 7
	stack := phpStack{end - 8, end - 16, end - 24, end - 32, end - 40, end - 48, end - 56}
	if stack.at < -maxStackOffset {
		return nil, errors.New("the unwinding program for PHP has no room on its stack")
	}
	for _, reading := range []struct {
		what, back string
		code       func(call asm.Instruction) asm.Instructions
	}{
		{"&func_type,", phpFunctionBack, func(call asm.Instruction) asm.Instructions {
			return asm.Instructions{ // the type is what comes first in a function
				asm.StoreMem(asm.RFP, stack.function, asm.R3, asm.DWord).WithSymbol(phpFunction),
				call.WithMetadata(asm.Metadata{}),
				asm.Ja.Label(phpFunctionBack),
			}
		}},
		{"&zend_op,", phpOplineBack, func(call asm.Instruction) asm.Instructions {
			return oplineCode(call, stack, offsets)
		}},
		{"(&lineno,", phpLineBack, func(call asm.Instruction) asm.Instructions {
			return asm.Instructions{ // if it cannot be read it is 0, which is there
				call.WithMetadata(asm.Metadata{}).WithSymbol(phpLine),
				asm.Mov.Imm(asm.R0, 0),
				asm.Ja.Label(phpLineBack),
			}
		}},
		{"type_info, sizeof(u32),", phpCheckBack, func(call asm.Instruction) asm.Instructions {
			return checkCode(call, stack, offsets)
		}},
	} {
		instructions, err = replaceCall(instructions, reading.what, reading.back,
			func(call asm.Instruction, _ int16) (asm.Instructions, error) { return reading.code(call), nil })
		if err != nil {
			return nil, err
		}
	}
	return instructions, nil
}

// phpOplineRegister has the instruction, by the module's name of it.
var phpOplineRegister = map[string]string{"amd64": "r15", "arm64": "r28"}[runtime.GOARCH]

// oplineCode returns the instructions at the reading of the instruction that a function is at.
func oplineCode(call asm.Instruction, stack phpStack, offsets map[string]int16) asm.Instructions {
	scratch := offsets["pythonUnwindScratch.frame"]
	const last, first = 0, 8 // of the function's instructions: their number, and the address
	read := func(size int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, stack.record, asm.DWord),
			asm.Add.Imm(asm.R1, int32(scratch)),
			asm.Mov.Imm(asm.R2, size),
			asm.FnProbeReadUser.Call(),
		}
	}
	// isOf goes to a label if the instruction at r1 is none of the function's, of which r2 has the address and r3 the
	// number.
	isOf := func(not string) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R0, asm.R1),
			asm.Sub.Reg(asm.R0, asm.R2),
			asm.RSh.Imm(asm.R0, zendOplineShift),
			asm.JGE.Reg(asm.R0, asm.R3, not),
		}
	}
	return slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, stack.to, asm.R1, asm.DWord).WithSymbol(phpOpline),
		asm.StoreMem(asm.RFP, stack.call, asm.R3, asm.DWord), // the instruction comes first in a call
		call.WithMetadata(asm.Metadata{}),
		asm.JNE.Imm(asm.R0, 0, phpOplineKeep),
	}, lookUpRecord(stack.key, phpOplineDone), asm.Instructions{
		// The innermost function is the one with which the program has begun, the first time.
		asm.LoadMem(asm.R1, asm.R0, offsets["phpUnwindState.zend_execute_data"], asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stack.call, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, phpOplineDone),
	}, lookUpProcess(phpTable, stack.record, stack.key, offsets["trace.pid"], phpOplineNone), asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, phpOplinesInProcInfo, asm.Byte),
		asm.StoreMem(asm.RFP, stack.at, asm.R1, asm.DWord),
		asm.LoadMem(asm.R3, asm.R0, offsets["current_execute_data"], asm.DWord),
	}, read(8), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, phpOplineNone),
		asm.LoadMem(asm.R1, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, scratch, asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stack.call, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, phpOplineDone),
		asm.LoadMem(asm.R1, asm.RFP, stack.at, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, phpOplineNone),
		asm.LoadMem(asm.R3, asm.RFP, stack.function, asm.DWord),
		asm.Add.Reg(asm.R3, asm.R1),
	}, read(first+8), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, phpOplineNone),
		asm.LoadMem(asm.R4, asm.RFP, stack.to, asm.DWord),
		asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
		asm.LoadMem(asm.R2, asm.R5, scratch+first, asm.DWord),
		asm.LoadMem(asm.R3, asm.R5, scratch+last, asm.Word),
		// C code that the interpreter has called keeps the register, or has something else in it.
		asm.LoadMem(asm.R1, asm.R5, offsets["state.text_section_id"], asm.DWord),
		asm.JEq.Imm(asm.R1, 0, phpOplineSaved), // compiled code
		asm.LoadMem(asm.R1, asm.R5, offsets["state."+phpOplineRegister], asm.DWord),
	}, isOf(phpOplineSaved), asm.Instructions{
		asm.StoreMem(asm.R4, 0, asm.R1, asm.DWord),
		asm.Ja.Label(phpOplineDone),
		asm.LoadMem(asm.R1, asm.R5, offsets["state.return_address"], asm.Byte).WithSymbol(phpOplineSaved),
		asm.JEq.Imm(asm.R1, 0, phpOplineNone), // no C code has been called
		asm.LoadMem(asm.R1, asm.R4, 0, asm.DWord),
	}, isOf(phpOplineNone), asm.Instructions{
		asm.Ja.Label(phpOplineDone),
		asm.LoadMem(asm.R4, asm.RFP, stack.to, asm.DWord).WithSymbol(phpOplineNone),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R4, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(phpOplineDone),
		asm.Ja.Label(phpOplineBack).WithSymbol(phpOplineKeep),
	})
}

// checkCode returns the instructions at the reading of type_info, which is the last one of a function.
func checkCode(call asm.Instruction, stack phpStack, offsets map[string]int16) asm.Instructions {
	scratch, text := offsets["pythonUnwindScratch.frame"], offsets["pythonUnwindScratch.code"]
	const file, names, length, caller = 0, 16, 32, 40 // in scratch
	// read reads from r3 to scratch.
	read := func(to int16, size int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, stack.record, asm.DWord),
			asm.Add.Imm(asm.R1, int32(scratch+to)),
			asm.Mov.Imm(asm.R2, size),
			asm.FnProbeReadUser.Call(),
			asm.JNE.Imm(asm.R0, 0, phpCheckFailed),
		}
	}
	// mix mixes words of the record into the hash.
	mix := func(from int16, words int) asm.Instructions {
		code := asm.Instructions{
			asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
			asm.LoadMem(asm.R1, asm.RFP, stack.hash, asm.DWord),
			asm.LoadImm(asm.R3, int64(phpHashMultiplier-1<<64), asm.DWord),
		}
		for i := range words {
			code = append(code,
				asm.LoadMem(asm.R2, asm.R5, from+int16(8*i), asm.DWord),
				asm.Xor.Reg(asm.R1, asm.R2),
				asm.Mul.Reg(asm.R1, asm.R3),
				asm.Mov.Reg(asm.R2, asm.R1),
				asm.RSh.Imm(asm.R2, 32),
				asm.Xor.Reg(asm.R1, asm.R2))
		}
		return append(code, asm.StoreMem(asm.RFP, stack.hash, asm.R1, asm.DWord))
	}
	// hash mixes which text it is, its length and its end into the hash: of that at r3, unless that is 0.
	texts := 0
	hash := func() asm.Instructions {
		texts++
		none, short := fmt.Sprint(phpCheck, "_none_", texts), fmt.Sprint(phpCheck, "_short_", texts)
		code := slices.Concat(asm.Instructions{
			asm.JEq.Imm(asm.R3, 0, none),
			asm.StoreMem(asm.RFP, stack.at, asm.R3, asm.DWord),
			asm.LoadMem(asm.R1, asm.RFP, stack.hash, asm.DWord),
			asm.Add.Imm(asm.R1, int32(texts)),
			asm.StoreMem(asm.RFP, stack.hash, asm.R1, asm.DWord),
			asm.Add.Imm(asm.R3, zendStringLength),
		}, read(length, 8), mix(scratch+length, 1), asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, stack.record, asm.DWord),
			asm.LoadMem(asm.R3, asm.RFP, stack.at, asm.DWord),
			asm.Add.Imm(asm.R3, zendStringChars),
			asm.LoadMem(asm.R2, asm.R1, scratch+length, asm.DWord),
			asm.JLT.Imm(asm.R2, phpTextBytes, short),
			asm.Add.Reg(asm.R3, asm.R2),
			asm.Sub.Imm(asm.R3, phpTextBytes-1),
			asm.Mov.Imm(asm.R2, phpTextBytes-1),
			asm.Mov.Imm(asm.R5, 0).WithSymbol(short),
		})
		for i := int16(0); i < phpTextBytes; i += 8 {
			code = append(code, asm.StoreMem(asm.R1, text+i, asm.R5, asm.DWord))
		}
		return slices.Concat(code, asm.Instructions{
			asm.Add.Imm(asm.R1, int32(text)),
			asm.FnProbeReadUser.Call(),
			asm.JNE.Imm(asm.R0, 0, phpCheckFailed),
		}, mix(text, phpTextBytes/8), asm.Instructions{
			asm.Mov.Imm(asm.R0, 0).WithSymbol(none),
		})
	}
	pointer := func(to asm.Register, at int16) asm.Instructions {
		return asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, stack.record, asm.DWord),
			asm.LoadMem(to, asm.R1, scratch+at, asm.DWord),
		}
	}
	return slices.Concat(asm.Instructions{
		asm.StoreMem(asm.RFP, stack.to, asm.R1, asm.DWord).WithSymbol(phpCheck),
		call.WithMetadata(asm.Metadata{}),
		asm.JNE.Imm(asm.R0, 0, phpCheckKeep),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, stack.hash, asm.R1, asm.DWord),
	}, lookUpRecord(stack.key, phpCheckFailed),
		lookUpProcess(phpTable, stack.record, stack.key, offsets["trace.pid"], phpCheckFailed), asm.Instructions{
			asm.LoadMem(asm.R1, asm.R0, phpFileInProcInfo, asm.Byte),
			asm.LoadMem(asm.R2, asm.RFP, stack.function, asm.DWord),
			asm.Add.Reg(asm.R2, asm.R1),
			asm.StoreMem(asm.RFP, stack.at, asm.R2, asm.DWord),
			asm.LoadMem(asm.R1, asm.R0, offsets["zend_execute_data_prev_execute_data"], asm.Byte),
			asm.LoadMem(asm.R3, asm.RFP, stack.call, asm.DWord),
			asm.Add.Reg(asm.R3, asm.R1),
		}, read(caller, 8), asm.Instructions{
			asm.LoadMem(asm.R3, asm.RFP, stack.at, asm.DWord),
		}, read(file, 16), asm.Instructions{
			asm.LoadMem(asm.R3, asm.RFP, stack.function, asm.DWord),
			asm.Add.Imm(asm.R3, zendFunctionName),
		}, read(names, 16),
		mix(scratch+file+zendFileLines, 1),
		pointer(asm.R3, file), hash(),
		pointer(asm.R3, names), hash(),
		pointer(asm.R3, names+8), asm.Instructions{
			asm.JEq.Imm(asm.R3, 0, phpCheckClass),
			asm.Add.Imm(asm.R3, zendClassName),
		}, read(length, 8), pointer(asm.R3, length), hash(), asm.Instructions{
			// What is in place of the other bits is not 0.
			asm.LoadMem(asm.R1, asm.RFP, stack.hash, asm.DWord).WithSymbol(phpCheckClass),
			asm.Mov.Reg(asm.R2, asm.R1),
			asm.RSh.Imm(asm.R2, phpHashBits),
			asm.Xor.Reg(asm.R1, asm.R2),
			asm.And.Imm(asm.R1, 1<<phpHashBits-1),
			asm.JNE.Imm(asm.R1, 0, phpCheckHashed),
			asm.Mov.Imm(asm.R1, 1),
			asm.LoadMem(asm.R4, asm.RFP, stack.to, asm.DWord).WithSymbol(phpCheckHashed),
			asm.LoadMem(asm.R3, asm.R4, 0, asm.Word),
			asm.And.Imm(asm.R3, phpTop),
			asm.LoadMem(asm.R5, asm.RFP, stack.record, asm.DWord),
			asm.LoadMem(asm.R5, asm.R5, scratch+caller, asm.DWord),
			asm.JEq.Imm(asm.R5, 0, phpCheckCalled),
			asm.Or.Imm(asm.R3, phpCalled),
			asm.Mov.Reg(asm.R2, asm.R1).WithSymbol(phpCheckCalled),
			asm.And.Imm(asm.R2, 0xffff),
			asm.Or.Reg(asm.R3, asm.R2),
			asm.RSh.Imm(asm.R1, 16),
			asm.LSh.Imm(asm.R1, 18),
			asm.Or.Reg(asm.R3, asm.R1),
			asm.StoreMem(asm.R4, 0, asm.R3, asm.Word),
			asm.Mov.Imm(asm.R0, 0),
			asm.Ja.Label(phpCheckBack).WithSymbol(phpCheckKeep),
			// What could not be read has no hash.
			asm.LoadMem(asm.R4, asm.RFP, stack.to, asm.DWord).WithSymbol(phpCheckFailed),
			asm.LoadMem(asm.R3, asm.R4, 0, asm.Word),
			asm.And.Imm(asm.R3, phpTop),
			asm.StoreMem(asm.R4, 0, asm.R3, asm.Word),
			asm.Mov.Imm(asm.R0, 0),
			asm.Ja.Label(phpCheckBack),
		})
}
