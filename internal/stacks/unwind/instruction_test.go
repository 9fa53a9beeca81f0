package unwind

import (
	"encoding/hex"
	"runtime"
	"testing"

	"gotest.tools/v3/assert"
)

func TestDecode(t *testing.T) {
	type machine struct {
		decode func([]byte) instruction
		code   map[string]instruction
	}
	for name, m := range map[string]machine{
		"x86-64": {decodeX86, map[string]instruction{
			"4889d8":                 {size: 3, goesOn: true},                        // mov %rbx,%rax
			"7405":                   {size: 2, jumps: true, jump: 5, goesOn: true},  // je
			"0f84fcffffff":           {size: 6, jumps: true, jump: -4, goesOn: true}, // je, near
			"eb10":                   {size: 2, jumps: true, jump: 16},               // jmp
			"e9f0ffffff":             {size: 5, jumps: true, jump: -16},              // jmp, near
			"e805000000":             {size: 5, goesOn: true, calls: true, jump: 5},  // call
			"894424f0":               {size: 4, goesOn: true, stores: true},          // mov %eax,-0x10(%rsp)
			"48c7000a000000":         {size: 7, goesOn: true, stores: true},          // movq $0xa,(%rax)
			"8b4424f0":               {size: 4, goesOn: true},                        // mov -0x10(%rsp),%eax
			"0f0bcc":                 {stops: true},                                  // ud2
			"cc":                     {stops: true},                                  // int3
			"0f05":                   {size: 2, goesOn: true},                        // syscall
			"ffd0":                   {size: 2, goesOn: true, calls: true},           // call *%rax
			"e2fe":                   {size: 2, jumps: true, jump: -2, goesOn: true}, // loop
			"ffe0":                   {},                                             // jmp *%rax
			"c3":                     {leaves: true},                                 // ret
			"f30f1efa":               {},                                             // endbr64
			"f4":                     {stops: true},                                  // hlt
			"62f17e486fc8":           {size: 6, goesOn: true},                        // vmovdqu32 %zmm0,%zmm1
			"62f1fe486f442401":       {size: 8, goesOn: true},                        // vmovdqu64 0x40(%rsp),%zmm0
			"62f1fe486f842441000000": {size: 11, goesOn: true},                       // vmovdqu64 0x41(%rsp),%zmm0
			"62f1fe486f059a020000":   {size: 10, goesOn: true},                       // vmovdqu64 0x29a(%rip),%zmm0
			"62b1fe486f04e500000000": {size: 11, goesOn: true},                       // vmovdqu64 0x0(,%r12,8),%zmm0
			"62f17fc96f06":           {size: 6, goesOn: true},                        // vmovdqu8 (%rsi),%zmm0{%k1}{z}
			"62f1754872f003":         {size: 7, goesOn: true},                        // vpslld $0x3,%zmm0,%zmm1
			"62f1f548731003":         {size: 7, goesOn: true},                        // vpsrlq $0x3,(%rax),%zmm1
			"62f3754825c2ff":         {size: 7, goesOn: true},                        // vpternlogd $0xff
			"62f17c48c2c901":         {size: 7, goesOn: true},                        // vcmpltps %zmm1,%zmm0,%k1
			"62e17d00c4c801":         {size: 7, goesOn: true},                        // vpinsrw $0x1,%eax,%xmm16,%xmm17
			"62f3fd483bc101":         {size: 7, goesOn: true},                        // vextracti64x4 $0x1,%zmm0,%ymm1
			"62f27d49900488":         {size: 7, goesOn: true},                        // vpgatherdd (%rax,%zmm1,4)
			"62f5744858d0":           {size: 6, goesOn: true},                        // vaddph %zmm0,%zmm1,%zmm2
			"62f67548b8d0":           {size: 6, goesOn: true},                        // vfmadd231ph %zmm0,%zmm1,%zmm2
			"62f17d58fe08":           {size: 6, goesOn: true},                        // vpaddd {1to16}
			"c4e3f933d103":           {size: 6, goesOn: true},                        // kshiftlq $0x3,%k1,%k2
			"c4e3fbf0d803":           {size: 6, goesOn: true},                        // rorx   $0x3,%rax,%rbx
			"c4e36d4c984523010000":   {size: 10, goesOn: true},                       // vpblendvb 0x12345(%rax)
			"c5f3c254240801":         {size: 7, goesOn: true},                        // vcmpltsd 0x8(%rsp),%xmm1,%xmm2
			"c4a17e6f04e500000000":   {size: 10, goesOn: true},                       // vmovdqu 0x0(,%r12,8),%ymm0
			"62f47c0801c0":           {},                                             // EVEX, map 4
			"62f77f08f8c000000000":   {},                                             // EVEX, map 7
			"c4e77bf8c000000000":     {},                                             // VEX, map 7
			"d5101000":               {},                                             // REX2
			"c5f877":                 {size: 3, goesOn: true},                        // vzeroupper
			"c5fe6f442410":           {size: 6, goesOn: true},                        // vmovdqu 0x10(%rsp),%ymm0
			"c5fd70c0d8":             {size: 5, goesOn: true},                        // vpshufd $0xd8,%ymm0,%ymm0
			"c4e27d18059a020000":     {size: 9, goesOn: true},                        // vbroadcastss 0x29a(%rip),%ymm0
			"c4e37d19c101":           {size: 6, goesOn: true},                        // vextractf128 $1,%ymm0,%xmm1
		}},
		"arm64": {decodeARM64, map[string]instruction{
			"1f2003d5": {size: 4, goesOn: true},                        // nop
			"40000054": {size: 4, jumps: true, jump: 4, goesOn: true},  // b.eq .+8
			"04000014": {size: 4, jumps: true, jump: 12},               // b .+16
			"400000b4": {size: 4, jumps: true, jump: 4, goesOn: true},  // cbz x0, .+8
			"ffffff97": {size: 4, goesOn: true, calls: true, jump: -8}, // bl .-4
			"200000b9": {size: 4, goesOn: true, stores: true},          // str w0, [x1]
			"200040b9": {size: 4, goesOn: true},                        // ldr w0, [x1]
			"00003fd6": {size: 4, goesOn: true, calls: true},           // blr x0
			"00001fd6": {},                                             // br x0
			"c0035fd6": {leaves: true},                                 // ret
			"000020d4": {stops: true},                                  // brk
		}},
	} {
		for text, want := range m.code {
			code, err := hex.DecodeString(text)
			assert.NilError(t, err)
			for len(code) < maxInstructionBytes {
				code = append(code, 0x90)
			}
			got := m.decode(code)
			assert.Check(t, got == want, "%s: %s is %+v, want %+v", name, text, got, want)
		}
	}
	assert.Check(t, runtime.GOARCH == "arm64" || decode([]byte{0xc3, 15: 0}) == decodeX86([]byte{0xc3, 15: 0}),
		"code is not decoded for this machine")
}

// Code is of a known length, or not understood, whatever it is.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x62, 0xf1, 0x7c, 0x48, 0x28, 0x84, 0x24})
	f.Add([]byte{0xc4, 0xe3, 0x7d, 0x19, 0xc1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var code [maxInstructionBytes]byte
		copy(code[:], b)
		for _, decode := range []func([]byte) instruction{decodeX86, decodeARM64} {
			if i := decode(code[:]); i.size < 0 || i.size > maxInstructionBytes || i.size == 0 && i.jumps {
				t.Errorf("%x is %+v", code, i)
			}
		}
	})
}
