package deltas

import (
	"debug/elf"
	"slices"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// What is before the function to which coroutines return ends stacks, unless something is described there; what is
// before other functions does not.
func TestContexts(t *testing.T) {
	const padding, lea = ".skip 16, 0x90\n", "lea start(%rip), %rcx"
	for name, c := range map[string]struct {
		lea, before, starts string
		want                bool
	}{
		"padding":            {lea, padding, "mov %rbx, %rsp", true},
		"little padding":     {lea, "nop\n", "mov %rbx, %rsp", true},
		"a target of a jump": {lea, padding, "endbr64; mov %rbx, %rsp", true},
		"a function":         {lea, "", "mov %rbx, %rsp", false},
		"other code":         {lea, padding, "mov %rsp, %rbx", false},
		"a later register":   {"lea start(%rip), %r9", padding, "mov %rbx, %rsp", true},
		"another before":     {"lea 1f(%rip), %rax; 1: " + lea, padding, "mov %rbx, %rsp", true},
		"of a register":      {"{disp32} lea start - 1f(%rax), %rcx; 1:", padding, "mov %rbx, %rsp", false},
	} {
		source := t.TempDir() + "/contexts.s"
		testenv.WriteFile(t, source, `
.globl makecontext, start
.type makecontext, @function
makecontext:
.cfi_startproc
endbr64
rdsspq %rax
push %rbx
.cfi_adjust_cfa_offset 8
`+c.lea+`
pop %rbx
.cfi_adjust_cfa_offset -8
ret
.cfi_endproc
.size makecontext, .-makecontext
`+c.before+`
start:
.hidden start
.cfi_startproc
`+c.starts+`
hlt
.cfi_endproc
`)
		library := testenv.Compile(t, "cc", source, "-shared", "-nostdlib")
		file, err := elf.Open(library)
		assert.NilError(t, err)
		symbols, err := file.Symbols()
		assert.NilError(t, err)
		file.Close()
		start := symbols[slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "start" })].Value
		data, provider := extract(t, library)
		got := infoAt(data, start-1) == stackdeltatypes.UnwindInfoStop
		assert.Check(t, got == c.want && provider.Uncorrected == 0, "%s: %v", name, got)
	}
}
