package unwind

import (
	"reflect"
	"slices"
	"testing"

	"github.com/elastic/go-freelru"
	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/interpreter/hotspot"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// caching is the engine's code of a runtime in which a name is 8 bytes at an address. It keeps names for ever.
type caching struct{ interpreter.Data }

// Attach implements interpreter.Data.
func (caching) Attach(_ interpreter.EbpfHandler, _ libpf.PID, _ libpf.Address,
	memory remotememory.RemoteMemory) (interpreter.Instance, error) {
	names, err := freelru.New[libpf.Address, string](16, libpf.Address.Hash32)
	return &cachingInstance{memory: memory, names: names}, err
}

type cachingInstance struct {
	interpreter.Instance
	memory remotememory.RemoteMemory
	names  *freelru.LRU[libpf.Address, string]
}

// Symbolize implements interpreter.Instance.
func (c *cachingInstance) Symbolize(word libpf.EbpfFrame, frames *libpf.Frames, _ libpf.FrameMapping) error {
	at := libpf.Address(word.Variable(0))
	name, known := c.names.Get(at)
	if !known {
		var b [8]byte
		if err := c.memory.Read(at, b[:]); err != nil {
			return err
		}
		name = string(b[:])
		c.names.Add(at, name)
	}
	frames.Append(&libpf.Frame{FunctionName: libpf.Intern(name)})
	return nil
}

// memoryOf is memory of the same 8 bytes again and again.
type memoryOf struct{ name string }

// ReadAt implements io.ReaderAt.
func (m *memoryOf) ReadAt(b []byte, at int64) (int, error) {
	for i := range b {
		b[i] = m.name[(at+int64(i))%8]
	}
	return len(b), nil
}

// The engine keeps what it has read for a request, and for no other: in each, what is there then is named. What is
// read for a word alone is all that its name depends on, whatever was read before.
func TestAttachedForgets(t *testing.T) {
	memory := &memoryOf{"function"}
	c := &runtimeCode{data: caching{}, from: memory, pages: newPages(), scripts: newV8Scripts()}
	word := libpf.EbpfFrame{libpf.NewEbpfFrameHeader(libpf.PythonFrame, 0, 3, 0), 4096, 0}
	name := func(frames libpf.Frames, err error) string {
		t.Helper()
		assert.Assert(t, err == nil && len(frames) == 1, "%d frames, %v", len(frames), err)
		return frames[0].Value().FunctionName.String()
	}
	var instance *attached
	for _, want := range []string{"function", "callable", "function"} {
		memory.name = want
		c.begin()
		assert.Check(t, name(c.symbolize(word)) == want)
		for range 2 {
			frames, read, err := c.symbolizeAlone(word)
			assert.Check(t, name(frames, err) == want)
			assert.Check(t, slices.Equal(read, []reading{c.pages.newReading([]byte(want), 4096)}), "%+v", read)
		}
		assert.Check(t, name(c.symbolize(word)) == want)
		assert.Check(t, instance == nil || instance == c.attached, "all is made anew")
		instance = c.attached
		c.end()
	}
}

// Of no more than maxAttached processes the worker keeps what the engine has, of those that were named last.
func TestAttachedIsBounded(t *testing.T) {
	s := &server{pages: newPages()}
	var all []*target
	for range maxAttached + 2 {
		code := &runtimeCode{data: caching{}, pages: s.pages, scripts: newV8Scripts()}
		all = append(all, &target{codes: map[*runtimeKind]*runtimeCode{{}: code}})
	}
	name := func(t *target) {
		for _, code := range t.codes {
			code.attached = new(attached)
		}
		s.endNaming(t)
	}
	isKept := func(t *target) (kept bool) {
		for _, code := range t.codes {
			kept = code.attached != nil
		}
		return kept
	}
	name(all[0])
	for _, other := range all[1:] {
		name(other)
		name(all[0])
		s.endNaming(&target{}) // without a runtime
	}
	for i, target := range all {
		assert.Check(t, isKept(target) == (i == 0 || i > len(all)-maxAttached), "process %d", i)
	}
	s.forgetAttached(all[0])
	name(all[1])
	assert.Check(t, isKept(all[len(all)-maxAttached+1]), "one that is gone counts")
	jvm := &target{code: &jvmCode{runtimeCode: &runtimeCode{attached: new(attached)}}}
	jvm.detach()
	assert.Check(t, jvm.code.attached == nil)
}

// What the engine has of a process of a runtime is in caches that can be emptied, but for what naming does not change.
// With another version of the engine, look whether that holds for the others.
func TestAttachedCaches(t *testing.T) {
	libjvm := javaHomes["17"] + "/lib/server/libjvm.so"
	_ = testenv.ReadFile(t, libjvm)
	_, python := pythonFile(t)
	for _, c := range []struct {
		path   string
		loader interpreter.Loader
		others []string
	}{
		{libjvm, hotspot.GetLoader(hotspot.Config{}), []string{
			"InstanceStubs", "successCount", "failCount", "d", "rm", "bias", "prefixes", "mainMappingsInserted",
			"heapAreas", "stubs",
		}},
		{python, runtimeBy(func(k *runtimeKind) bool { return k.name == "Python" }).loader, []string{
			"InstanceStubs", "successCount", "failCount", "d", "rm", "bias", "getFuncOffset", "procInfoInserted",
		}},
	} {
		file := pfelf.NewReference(c.path, pfelf.SystemOpener)
		data, err := c.loader(noTables{}, interpreter.NewLoaderInfo(0, file, nil))
		assert.Assert(t, err == nil && data != nil, "%s: %v", c.path, err)
		code := &runtimeCode{data: data, pages: newPages()}
		assert.NilError(t, code.attach())
		instance := reflect.TypeOf(code.attached.Instance).Elem()
		var others []string
		for i := range instance.NumField() {
			if _, is := instance.Field(i).Type.MethodByName("Purge"); !is {
				others = append(others, instance.Field(i).Name)
			}
		}
		assert.DeepEqual(t, others, c.others)
		assert.Check(t, len(code.attached.caches) == instance.NumField()-len(others))
	}
}

// BenchmarkNaming measures a request with a word of a runtime that is not known.
func BenchmarkNaming(b *testing.B) {
	_, python := pythonFile(b)
	file := pfelf.NewReference(python, pfelf.SystemOpener)
	loader := runtimeBy(func(k *runtimeKind) bool { return k.name == "Python" }).loader
	data, err := loader(noTables{}, interpreter.NewLoaderInfo(0, file, nil))
	assert.NilError(b, err)
	c := &runtimeCode{data: data, from: &memoryOf{"12345678"}, pages: newPages(), scripts: newV8Scripts()}
	word := libpf.EbpfFrame{libpf.NewEbpfFrameHeader(libpf.PythonFrame, 0, 3, 0), 4096, 0}
	b.ReportAllocs()
	for b.Loop() {
		c.begin()
		_, _, _ = c.symbolizeAlone(word) // it is of another file
		c.end()
	}
}
