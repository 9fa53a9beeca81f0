package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Of a program that the verifier refuses at its end, nothing is read but the reason.
func TestRefusedLate(t *testing.T) {
	testenv.NeedRoot(t)
	instructions := asm.Instructions{asm.Mov.Imm(asm.R0, 0)}
	for range 10_000 {
		instructions = append(instructions, asm.Add.Imm(asm.R0, 1))
	}
	instructions = append(instructions, asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Return())
	programs := map[string]*ebpf.ProgramSpec{
		"late": {Type: ebpf.SocketFilter, License: "GPL", Instructions: instructions},
	}
	var objects struct {
		Late *ebpf.Program `ebpf:"late"`
	}
	for how, load := range map[string]func() error{
		"load": func() error {
			return load(&ebpf.CollectionSpec{Programs: programs}, &objects, ebpf.CollectionOptions{})
		},
		"NewCollection": func() error {
			_, err := NewCollection(&ebpf.CollectionSpec{Programs: programs}, nil)
			return err
		},
	} {
		err := load()
		var refused *ebpf.VerifierError
		assert.Assert(t, errors.As(err, &refused), "%s: %v", how, err)
		assert.Check(t, len(refused.Log) == 1, "%s: %d lines: %.500q", how, len(refused.Log), refused.Log)
		assert.ErrorContains(t, err, "denied: R0 invalid mem access '")
	}
}
