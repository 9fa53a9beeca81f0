package tlsdesc

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/memread"
)

// inspectOTel opens a process whose file with the variable is loaded.
func inspectOTel(t *testing.T, p *demo.OTel) *target {
	t.Helper()
	testenv.NeedRoot(t)
	f, err := os.Open(p.HostPath(p.File))
	assert.NilError(t, err)
	defer f.Close()
	info, err := f.Stat()
	assert.NilError(t, err)
	v, err := elfsym.ParseThreadContext(f, info.Size())
	assert.NilError(t, err)
	mem := memread.Open("/proc", p.PID)
	t.Cleanup(func() { mem.Close() })
	return &target{mem, v, p.Bias(v.Bias), readMappings(t, p.PID)}
}

// checkOTel compares what a rule finds with what the threads report. One that did not touch the
// variable has none, or one that is null.
func checkOTel(t *testing.T, p *target, rule Rule, threads []demo.OTelThread) {
	t.Helper()
	var truths []truth
	for _, thread := range threads {
		truths = append(truths, truth{fmt.Sprint("thread ", thread.Index), thread.ThreadPointer, thread.Variable,
			thread.Record})
	}
	p.compare(t, rule, truths)
}

// otelForms are all ways in which a file can have OpenTelemetry's variable.
func otelForms() (forms []otelForm) {
	add := func(o demo.OTelOptions, kind Kind, libc Libc) {
		forms = append(forms, otelForm{o, kind, libc})
	}
	kinds := func(form demo.OTelForm, tlsdesc Kind) Kind {
		switch {
		case strings.HasPrefix(string(form), "tlsdesc"):
			return tlsdesc
		case strings.HasPrefix(string(form), "ie"):
			return Static
		}
		return DTPMod
	}
	for _, form := range demo.OTelForms() {
		initialExec := strings.HasPrefix(string(form), "ie")
		for _, arm := range []bool{false, true} {
			o := demo.OTelOptions{Form: form, AArch64: arm}
			add(o, kinds(form, Static), Glibc)
			o.Program = demo.OTelLinked
			add(o, kinds(form, Static), Glibc)
			if o.Program, o.Dynamic = demo.OTelLoaded, true; !initialExec { // it has no memory for that
				add(o, kinds(form, Dynamic), Glibc)
			}
		}
		o := demo.OTelOptions{Form: form, Musl: true}
		if !initialExec { // musl does not load it
			add(o, kinds(form, Dynamic), Musl)
		}
		o.Program = demo.OTelLinked
		add(o, kinds(form, Static), Musl)
	}
	for _, program := range []demo.OTelProgram{
		demo.OTelPIE, demo.OTelAligned, demo.OTelNoPIE, demo.OTelHidden, demo.OTelStatic, demo.OTelStaticPIE,
	} {
		static := program == demo.OTelStatic || program == demo.OTelStaticPIE
		for _, o := range []demo.OTelOptions{{}, {AArch64: true}, {Musl: true}} {
			libc := Glibc
			switch {
			case static:
				libc = LibcUnknown // it is part of the program
			case o.Musl:
				libc = Musl
			}
			o.Program = program
			add(o, Static, libc)
		}
	}
	return forms
}

type otelForm struct {
	demo.OTelOptions
	kind Kind
	libc Libc
}

func (f otelForm) String() string {
	words := []string{"glibc", string(f.Program), string(f.Form)}
	if f.Musl {
		words[0] = "musl"
	}
	if f.AArch64 {
		words = append(words, "aarch64")
	}
	if f.Dynamic {
		words = append(words, "dynamic")
	}
	return strings.Join(words, " ")
}

// Every way in which a file can have the variable, in threads older and younger than the file, in
// such as have touched it and such as have not, by both ways to write.
func TestOTelForms(t *testing.T) {
	for i, form := range otelForms() {
		t.Run(form.String(), func(t *testing.T) {
			o := form.OTelOptions
			o.Threads, o.InPlace, o.Hold = 2, i%2 == 0, o.Program == demo.OTelLoaded
			p := demo.StartOTel(t, o)
			if o.Hold {
				p.Load()
			}
			p.StartThreads(2)
			target := inspectOTel(t, p)
			rule := target.resolve(t)
			assert.Check(t, rule.Kind == form.kind && rule.Libc == form.libc,
				"%+v, not %v of %v", rule, form.kind, form.libc)
			checkOTel(t, target, rule, p.Threads())
			for _, thread := range []int{0, 1, 3} {
				p.Begin(thread, demo.OTelRecord{SpanID: demo.SpanID{byte(1 + thread)}})
			}
			threads := p.Threads()
			assert.Check(t, threads[0].Record != 0 && threads[3].Record != 0 && threads[4].Variable == 0,
				"%+v", threads)
			checkOTel(t, target, rule, threads)
			p.Clear(1)
			checkOTel(t, target, rule, p.Threads())
			again := target.resolve(t)
			assert.Check(t, again == rule, "%+v, and then %+v", rule, again)
		})
	}
}

// What a file's code reaches by other TLS models than an agent library's.
func TestResolveOtherModels(t *testing.T) {
	const x86, arm = elf.EM_X86_64, elf.EM_AARCH64
	const tlsdesc, dtpmod, tpoff, localExec = elfsym.TLSDESC, elfsym.DTPMOD64, elfsym.TPOFF64, elfsym.LocalExec
	const armLoader, armMusl = "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"
	glibc, none := []string{libcGlibc, loaderGlibc}, Rule{}
	static := func(libc Libc, offset int64) Rule { return Rule{Kind: Static, Libc: libc, Offset: offset} }
	// stored is what a process has for the relocation, with a resolver of its machine.
	stored := func(code []byte, words ...uint64) *image {
		return new(image).words(pairAddr, words...).bytes(resolver, code...)
	}
	nothing := new(image) // is read

	for _, test := range []struct {
		name    string
		machine elf.Machine
		kind    elfsym.RelocationKind
		offset  int64 // of the variable from where the relocation leads
		mem     *image
		files   []string
		want    Rule
		err     error
	}{
		{"TPOFF64", x86, tpoff, 0, stored(nil, signed(-0x40)), glibc, static(Glibc, -0x40), nil},
		{"TPOFF64, musl", x86, tpoff, 0, stored(nil, signed(-8)), []string{libcMusl}, static(Musl, -8), nil},
		{"TPOFF64, both C libraries", x86, tpoff, 0, stored(nil, signed(-8)), []string{libcMusl, libcGlibc},
			static(LibcUnknown, -8), nil},
		{"TPOFF64, not stored yet", x86, tpoff, 0, stored(nil, 0), glibc, none, ErrUnresolved},
		{"TPOFF64, the linker's word", x86, tpoff, 0, stored(nil, tlsOffset), glibc, none, ErrUnresolved},
		{"TPOFF64 above the thread pointer", x86, tpoff, 0, stored(nil, 0x40), glibc, none, ErrMalformed},
		{"TPOFF64 overlapping the thread pointer", x86, tpoff, 0, stored(nil, signed(-7)), glibc, none, ErrMalformed},
		{"TPOFF64 too far", x86, tpoff, 0, stored(nil, signed(-1<<31-8)), glibc, none, ErrMalformed},
		{"TPOFF64 absurd", x86, tpoff, 0, stored(nil, 1<<63), glibc, none, ErrMalformed},
		{"TPOFF64 not mapped", x86, tpoff, 0, new(image), glibc, none, memread.ErrUnmapped},
		{"TPREL64", arm, tpoff, 0, stored(nil, 0xb8), []string{armLoader}, static(Glibc, 0xb8), nil},
		{"TPREL64, musl, block at the thread pointer", arm, tpoff, 0, stored(nil, tlsOffset), []string{armMusl},
			static(Musl, tlsOffset), nil},
		{"TPREL64, the linker's word", arm, tpoff, 0, stored(nil, tlsOffset), []string{armLoader}, none, ErrUnresolved},
		{"TPREL64, the linker's word or not", arm, tpoff, 0, stored(nil, tlsOffset), []string{armLoader, armMusl}, none,
			ErrUnresolved},
		{"TPREL64, not stored yet", arm, tpoff, 0, stored(nil, 0), []string{armMusl}, none, ErrUnresolved},
		{"TPREL64 below the thread pointer", arm, tpoff, 0, stored(nil, signed(-0x40)), []string{armLoader}, none,
			ErrMalformed},

		{"local-exec", x86, localExec, -0x58, nothing, glibc, static(Glibc, -0x58), nil},
		{"local-exec, static executable", x86, localExec, -0x58, nothing, nil, static(LibcUnknown, -0x58), nil},
		{"local-exec above the thread pointer", x86, localExec, 0x58, nothing, glibc, none, ErrMalformed},
		{"local-exec too far", x86, localExec, -1<<31 - 8, nothing, glibc, none, ErrMalformed},
		{"local-exec, aarch64", arm, localExec, 0x28, nothing, []string{armLoader}, static(Glibc, 0x28), nil},
		{"local-exec, aarch64, below the thread pointer", arm, localExec, -8, nothing, nil, none, ErrMalformed},

		{"TLSDESC of the block, static", x86, tlsdesc, tlsOffset,
			stored(code.x86Static, resolver, signed(-0x98)), glibc, static(Glibc, -0x80), nil},
		{"TLSDESC of the block, static, not stored yet", x86, tlsdesc, tlsOffset, stored(code.x86Static, resolver, 0),
			glibc, none, ErrUnresolved},
		{"TLSDESC of the block, static, beyond the thread pointer", x86, tlsdesc, tlsOffset,
			stored(code.x86Static, resolver, signed(-0x18)), glibc, none, ErrMalformed},
		{"TLSDESC of the block at the thread pointer", arm, tlsdesc, tlsOffset, stored(code.armStatic, resolver, 0),
			[]string{armMusl}, static(Musl, tlsOffset), nil},
		{"TLSDESC of the block, dynamic", x86, tlsdesc, tlsOffset,
			stored(code.x86GlibcDynamic, resolver, argument).words(argument, 2, 0, 7), glibc,
			Rule{Kind: Dynamic, Libc: Glibc, Offset: tlsOffset, Module: 2, Generation: 7,
				DTVOffset: 8, DTVStride: 16, DTVCapacityOffset: -16}, nil},
		{"TLSDESC of another place, dynamic", x86, tlsdesc, 8,
			stored(code.x86GlibcDynamic, resolver, argument).words(argument, 2, 0, 7), glibc, none, ErrMalformed},
		{"DTPMOD64 of the block", x86, dtpmod, tlsOffset, stored(nil, 3, 0), glibc,
			Rule{Kind: DTPMod, Libc: Glibc, Offset: tlsOffset, Module: 3, DTVOffset: 8, DTVStride: 16,
				DTVCapacityOffset: -16}, nil},
		{"DTPMOD64 of the block, not stored yet", x86, dtpmod, tlsOffset, stored(nil, 0, 0), glibc, none,
			ErrUnresolved},
		{"DTPMOD64 of another place", x86, dtpmod, tlsOffset, stored(nil, 3, 8), glibc, none, ErrMalformed},
		{"DTPMOD64 around 2^64", x86, dtpmod, tlsOffset + 8, stored(nil, 3, ^uint64(0)-7), glibc, none, ErrMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := library(test.machine, test.kind)
			v.Relocation.Offset = test.offset
			rule, err := Resolve(v, bias, test.mem, mapped(test.files...))
			assert.Check(t, rule == test.want && errors.Is(err, test.err),
				"%+v, %v, want %+v, %v", rule, err, test.want, test.err)
			assert.Check(t, test.kind != localExec || test.mem.batches == 0, "%d batches of reads", test.mem.batches)
		})
	}
}
