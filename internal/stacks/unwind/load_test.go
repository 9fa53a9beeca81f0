package unwind

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/testenv"
)

// The programs load as they are on kernels before 5.17, without calls that these do not have, and as
// the module has them where a kernel's verifier refuses long loops.
func TestLoadWithoutAreas(t *testing.T) {
	shareEngine(t) // skips the test if something is missing
	kernel, err := readKernelLayout(nil)
	assert.NilError(t, err)
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	spec, err := selectPrograms(full, false, hotspotFrames)
	assert.NilError(t, err)
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
		assert.NilError(t, err)
		c.close()
	}
}

// Whatever size files' tables have, programs find them in one table: with one for each size, the verifier takes ten
// times as long.
func TestOneTableOfFiles(t *testing.T) {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	programs := []string{nativeProgram}
	for _, kind := range runtimeKinds {
		programs = append(programs, kind.program)
	}
	for _, name := range programs {
		spec, err := selectFrom(full, []string{name}, nil, true, 0)
		assert.NilError(t, err)
		for table := range spec.Maps {
			assert.Check(t, !strings.HasPrefix(table, filesPrefix) || table == filesMap, "%s uses %s", name, table)
		}
	}
	spec, err := selectPrograms(full, true, hotspotFrames)
	assert.NilError(t, err)
	assert.Check(t, spec.Maps[filesMap].InnerMap.Flags&unix.BPF_F_INNER_MAP != 0, "tables must be of one size")
}

// On kernels before 5.17 whose verifier refuses long loops, stacks of JVMs are whole if they have no more
// than 116 frames, and else are cut, with those next to the leaf.
func TestJVMWithoutAreas(t *testing.T) {
	e := openEngineBy(t, func(c *Counters) (*Engine, error) {
		e, err := open(t.Context(), testOptions(), c, Kind())
		if err != nil {
			return nil, err
		}
		full, err := support.LoadCollectionSpec()
		assert.NilError(t, err)
		chain, err := loadWith(full, e.chain.kernel, false, 0)
		assert.NilError(t, err)
		e.chain.close()
		e.chain = chain
		return e, nil
	})
	e.sample(t)
	shallow := startJVM(t, "17", 1, 30, "-Xint")
	e.synchronize(t, shallow.target)
	e.awaitWhole(t, shallow.target, 30)

	deep := startJVM(t, "17", 1, 300, "-Xint")
	e.synchronize(t, deep.target)
	testenv.Poll(t, deadline, "a cut stack", func() bool {
		s := e.next(t, deep.target)
		frames, err := e.name(t, deep.target, s)
		assert.NilError(t, err)
		calls := 0
		for _, f := range frames {
			if f.Function == "Recursion.ping" || f.Function == "Recursion.pong" {
				calls++
			}
		}
		assert.Assert(t, calls <= 116, "%d calls", calls)
		return calls >= 100 && s.failure != 0
	})
}

// Where the kernel's verifier refuses the program for JVMs as it is changed, that is loaded as the module has it, and
// said; here it accepts what is changed.
func TestProgramRefused(t *testing.T) {
	e := shareEngine(t)
	assert.Check(t, e.Status().JavaRefused == "", e.Status().JavaRefused)
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	full.Types = full.Types.Copy()
	var process *btf.Struct
	assert.NilError(t, full.Types.TypeByName("HotspotProcInfo", &process))
	for i := range process.Members {
		process.Members[i].Offset += btf.Bits(8 * process.Size) // beyond what the program may read
	}
	c, err := load(full, e.chain.kernel, e.chain.findsAreas)
	assert.NilError(t, err)
	defer c.close()
	refused := &Engine{chain: c, spawner: e.spawner}
	text := refused.Status().JavaRefused
	assert.Check(t, strings.Contains(text, "verifier") && strings.Contains(text, "invalid access to map"), "%q", text)
	assert.Check(t, len(text) < 500 && !strings.Contains(text, "omitted"), "not the whole log of it: %q", text)
	c.loadWaits()
	assert.Check(t, c.noWaits)
}

// Programs that do not have the loop are not changed.
func TestSetLoopEnd(t *testing.T) {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	instructions := full.Programs[hotspotProgram].Instructions
	before := slices.Clone(instructions)
	err = setLoopEnd(instructions, "PYTHON_FRAMES_PER_PROGRAM", 5)
	assert.Check(t, err != nil && slices.Equal(instructions, before), err)
	assert.Check(t, setLoopEnd(instructions, "HOTSPOT_FRAMES_PER_PROGRAM", 5))
	changed := 0
	for i := range instructions {
		if instructions[i] != before[i] {
			changed++
		}
	}
	assert.Check(t, changed == 1, "%d instructions are changed", changed)
}

// The sampler accepts the chain: its last program loads with the chain's records.
func TestUnwinder(t *testing.T) {
	e := openEngine(t)
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{})
	assert.NilError(t, err)
	defer sampler.Close()
	assert.NilError(t, sampler.SetUnwinder(e.Unwinder()))
	assert.NilError(t, sampler.SetUnwinder(nil))
}
