package unwind

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"go.opentelemetry.io/ebpf-profiler/support"

	"correlator/bpf"
)

// The programs load as they are on kernels before 5.17, without calls that these do not have, and as
// the module has them where a kernel's verifier refuses long loops.
func TestLoadWithoutAreas(t *testing.T) {
	openUntested(t) // skips the test if something is missing
	kernel, err := readKernelLayout()
	if err != nil {
		t.Fatal(err)
	}
	full, err := support.LoadCollectionSpec()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := selectPrograms(full, false, hotspotFrames)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range spec.Programs {
		for _, ins := range p.Instructions {
			if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnFindVma ||
				strings.HasPrefix(ins.Reference(), "find_vma") {
				t.Errorf("%s has %v", name, ins)
			}
		}
	}
	for _, frames := range []int64{hotspotFrames, 0} {
		c, err := loadWith(full, kernel, false, frames)
		if err != nil {
			t.Fatal(err)
		}
		c.close()
	}
}

// Programs that do not have the loop are not changed.
func TestSetLoopEnd(t *testing.T) {
	full, err := support.LoadCollectionSpec()
	if err != nil {
		t.Fatal(err)
	}
	instructions := full.Programs[hotspotProgram].Instructions
	before := slices.Clone(instructions)
	err = setLoopEnd(instructions, "PYTHON_FRAMES_PER_PROGRAM", 5)
	if err == nil || !slices.Equal(instructions, before) {
		t.Errorf("%v", err)
	}
	if err := setLoopEnd(instructions, "HOTSPOT_FRAMES_PER_PROGRAM", 5); err != nil {
		t.Error(err)
	}
	changed := 0
	for i := range instructions {
		if instructions[i] != before[i] {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d instructions are changed", changed)
	}
}

// The sampler accepts the chain: its last program loads with the chain's records.
func TestUnwinder(t *testing.T) {
	e := openEngine(t)
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.Close()
	if err := sampler.SetUnwinder(e.Unwinder()); err != nil {
		t.Fatal(err)
	}
	if err := sampler.SetUnwinder(nil); err != nil {
		t.Fatal(err)
	}
}
