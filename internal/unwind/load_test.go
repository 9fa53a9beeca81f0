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

func TestFreezes(t *testing.T) {
	for version, want := range map[[3]int]bool{
		{5, 15, 0}: false, {5, 18, 19}: false, {5, 19, 0}: true, {6, 0, 19}: true, {6, 1, 35}: true, {6, 1, 36}: false,
		{6, 2, 16}: true, {6, 3, 9}: true, {6, 3, 10}: false, {6, 4, 0}: false, {6, 18, 1}: false, {7, 0, 0}: false,
	} {
		if got := freezes(version[0], version[1], version[2]); got != want {
			t.Errorf("%v: %v", version, got)
		}
	}
}

// The versions are those that machines print.
func TestStableVersion(t *testing.T) {
	for _, c := range []struct {
		release, build string
		want           [3]int
	}{
		{"6.1.0-50-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02)", [3]int{6, 1, 176}},
		{"6.12.117+deb13-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-11-12)", [3]int{6, 12, 117}},
		{"6.8.0-45-generic", "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024", [3]int{6, 8, 0}},
		{"6.18.44-fc-v669", "#1 SMP PREEMPT_DYNAMIC @0", [3]int{6, 18, 44}},
		{"7.0-rc3", "#1 SMP", [3]int{7, 0, 0}},
	} {
		if got, err := stableVersion(c.release, c.build); err != nil || got != c.want {
			t.Errorf("%s, %s: %v, %v, want %v", c.release, c.build, got, err, c.want)
		}
	}
	if version, err := stableVersion("six", "#1 SMP"); err == nil {
		t.Errorf("no version: %v", version)
	}
}
