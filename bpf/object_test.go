package bpf

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// objects are the committed objects, which are both read on any host.
var objects = []struct {
	name, file string
	thread     *btf.Struct // thread_struct of a kernel of this architecture
	pointerOff int64       // of the thread pointer in it
}{{
	name: "amd64", file: "threads_x86_bpfel.o",
	thread:     record("thread_struct", 512, field{"sp", word, 0}, field{"fsbase", word, 40}),
	pointerOff: 40,
}, {
	name: "arm64", file: "threads_arm64_bpfel.o",
	thread: record("thread_struct", 512, field{"uw",
		record("", 64, field{"tp_value", word, 8}, field{"tp2_value", word, 16}), 104}),
	pointerOff: 104 + 8,
}}

// The other structures are generated from the objects.
func TestSamplerObjects(t *testing.T) {
	for _, arch := range []string{"x86", "arm64"} {
		verifyELF(t, "sampler_"+arch+"_bpfel.o")
		verifyELF(t, "identity_"+arch+"_bpfel.o")
		verifyELF(t, "waits_"+arch+"_bpfel.o")
		verifyELF(t, "walks_"+arch+"_bpfel.o")
		var record *btf.Struct
		assert.NilError(t, loadSpec(t, "sampler_"+arch+"_bpfel.o").Types.TypeByName("record_layout", &record))
		assert.Check(t, uintptr(record.Size) == unsafe.Sizeof(RecordLayout{}), "%s: %d bytes", arch, record.Size)
	}
	for outcome, name := range outcomeNames {
		assert.Check(t, name != "" && KernelOutcome(outcome).String() == name, "outcome %d has no name", outcome)
	}
}

func TestObjects(t *testing.T) {
	for _, object := range objects {
		t.Run(object.name, func(t *testing.T) {
			verifyELF(t, object.file)
			spec := loadSpec(t, object.file)
			program := spec.Programs["report_thread"]
			assert.Assert(t, len(spec.Programs) == 1 && program != nil, "programs: %v", spec.Programs)
			assert.Check(t, program.Type == ebpf.Tracing && program.AttachType == ebpf.AttachTraceIter &&
				program.AttachTo == "task",
				"program for %s, %s, %q", program.Type, program.AttachType, program.AttachTo)
			assert.Check(t, len(spec.Maps) == 0, "unused maps: %v", spec.Maps)
			var record *btf.Struct
			assert.NilError(t, spec.Types.TypeByName("thread_record", &record))
			assert.Check(t, record.Size == uint32(recordBytes),
				"record: %d bytes in the program, %d in Go", record.Size, recordBytes)
		})
	}
}

// verifyELF checks that the object does not depend on where it was built.
func verifyELF(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	assert.NilError(t, err)
	file, err := elf.NewFile(bytes.NewReader(content))
	assert.NilError(t, err)
	assert.Check(t, file.Machine == elf.EM_BPF && file.Data == elf.ELFDATA2LSB, "%s, %s", file.Machine, file.Data)
	for _, section := range file.Sections {
		assert.Check(t, !bytes.HasPrefix([]byte(section.Name), []byte(".debug")),
			"section %s was not stripped", section.Name)
	}
	if path := regexp.MustCompile(`\x00/[[:print:]]+/[[:print:]]+`).Find(content); path != nil {
		t.Errorf("absolute path %q", path[1:])
	}
}

func loadSpec(t testing.TB, file string) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec(file)
	assert.NilError(t, err)
	return spec
}

// A field of a structure of the kernel, for record.
type field struct {
	name  string
	typ   btf.Type
	bytes uint32 // offset
}

var word = &btf.Int{Name: "unsigned long", Size: 8}

func record(name string, size uint32, fields ...field) *btf.Struct {
	s := &btf.Struct{Name: name, Size: size}
	for _, f := range fields {
		s.Members = append(s.Members, btf.Member{Name: f.name, Type: f.typ, Offset: btf.Bits(f.bytes * 8)})
	}
	return s
}

// On a kernel with other field offsets than in kernel.h, every access is relocated.
func TestRelocation(t *testing.T) {
	for _, object := range objects {
		t.Run(object.name, func(t *testing.T) {
			program := loadSpec(t, object.file).Programs["report_thread"]
			got := relocatedOffsets(t, program.Instructions, otherKernel(t, object.thread))
			want := []int64{
				0,                        // bpf_iter__task.meta, upid.nr
				4,                        // pid.level
				8,                        // bpf_iter__task.task
				16,                       // bpf_iter_meta.seq
				24,                       // signal_struct.thread_head
				44,                       // task_struct.flags
				112,                      // pid.numbers
				1600,                     // task_struct.start_boottime
				1700,                     // task_struct.group_leader
				1800,                     // task_struct.thread_pid
				1900,                     // task_struct.thread_node.next
				2000,                     // task_struct.signal
				3000 + object.pointerOff, // task_struct.thread
			}
			assert.Check(t, slices.Equal(got, want), "offsets %v, not %v", got, want)
		})
	}
}

func otherKernel(t *testing.T, thread *btf.Struct) *btf.Spec {
	t.Helper()
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	unsigned := &btf.Int{Name: "unsigned int", Size: 4}
	long := &btf.Int{Name: "unsigned long long", Size: 8}
	list := record("list_head", 16)
	pointer := func(to btf.Type) btf.Type { return &btf.Pointer{Target: to} }
	list.Members = record("", 0, field{"next", pointer(list), 0}, field{"prev", pointer(list), 8}).Members
	upid := record("upid", 16, field{"nr", number, 0}, field{"ns", pointer(&btf.Fwd{Name: "pid_namespace"}), 8})
	pid := record("pid", 112, field{"count", unsigned, 0}, field{"level", unsigned, 4},
		field{"numbers", &btf.Array{Index: unsigned, Type: upid, Nelems: 0}, 112})
	signal := record("signal_struct", 1000, field{"thread_head", list, 24})
	task := record("task_struct", 4000)
	task.Members = record("", 0, field{"flags", unsigned, 44}, field{"start_boottime", long, 1600},
		field{"group_leader", pointer(task), 1700}, field{"thread_pid", pointer(pid), 1800},
		field{"thread_node", list, 1900}, field{"signal", pointer(signal), 2000},
		field{"thread", thread, 3000}).Members
	meta := record("bpf_iter_meta", 24, field{"seq", pointer(&btf.Fwd{Name: "seq_file"}), 16})
	return specOf(t, record("bpf_iter__task", 16, field{"meta", pointer(meta), 0}, field{"task", pointer(task), 8}))
}

func specOf(t *testing.T, types ...btf.Type) *btf.Spec {
	t.Helper()
	builder, err := btf.NewBuilder(types, nil)
	assert.NilError(t, err)
	spec, err := builder.Spec()
	assert.NilError(t, err)
	return spec
}

// relocatedOffsets returns the offsets of the fields that the instructions use on that kernel,
// sorted and without duplicates.
func relocatedOffsets(t *testing.T, instructions asm.Instructions, kernel *btf.Spec) []int64 {
	t.Helper()
	var relocations []*btf.CORERelocation
	var relocated []*asm.Instruction
	for i := range instructions {
		if relocation := btf.CORERelocationMetadata(&instructions[i]); relocation != nil {
			relocations = append(relocations, relocation)
			relocated = append(relocated, &instructions[i])
		}
	}
	noLocalTypes := func(typ btf.Type) (btf.TypeID, error) {
		t.Errorf("relocation of the local type %v", typ)
		return 0, nil
	}
	fixups, err := btf.CORERelocate(relocations, []*btf.Spec{kernel}, binary.LittleEndian, noLocalTypes)
	assert.NilError(t, err)
	var offsets []int64
	for i, fixup := range fixups {
		assert.NilError(t, fixup.Apply(relocated[i]))
		offset := relocated[i].Constant
		if relocated[i].OpCode.Class() == asm.LdXClass {
			offset = int64(relocated[i].Offset)
		}
		offsets = append(offsets, offset)
	}
	slices.Sort(offsets)
	return slices.Compact(offsets)
}

// What is embedded is what the compiler has made.
func TestCompressedObjects(t *testing.T) {
	paths, err := filepath.Glob("*_bpfel.o.gz")
	assert.NilError(t, err)
	assert.Check(t, len(paths) == 12, paths)
	for _, path := range paths {
		r, err := gzip.NewReader(bytes.NewReader(testenv.ReadFile(t, path)))
		assert.NilError(t, err)
		content, err := io.ReadAll(r)
		assert.NilError(t, err)
		assert.Check(t, bytes.Equal(content, testenv.ReadFile(t, strings.TrimSuffix(path, ".gz"))),
			"%s is not of the same object: run go generate", path)
	}
}
