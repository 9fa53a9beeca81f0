package elfsym

import (
	"bytes"
	"debug/elf"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// otelPrebuilt is where the files of testdata/otel/README.md are.
const otelPrebuilt = "../testdata/otel/prebuilt"

func parseThreadContext(b []byte) (*Variable, error) {
	return ParseThreadContext(bytes.NewReader(b), int64(len(b)))
}

// The prebuilt files. The values are those of readelf -Ws, -r and -l, and of local-exec those of
// the code, by objdump -d.
var threadContexts = []struct {
	name       string
	tls        uint64
	relocation TLSRelocation
}{
	{"aarch64-gd-local.so", 0x18, TLSRelocation{DTPMOD64, 0x1fd8, 0}},
	{"aarch64-gd.so", 0x18, TLSRelocation{DTPMOD64, 0x1fd8, 0}},
	{"aarch64-ie-local.so", 0x18, TLSRelocation{TPOFF64, 0x1fd8, 0}},
	{"aarch64-ie.so", 0x18, TLSRelocation{TPOFF64, 0x1fd8, 0}},
	{"aarch64-ld.so", 0x18, TLSRelocation{DTPMOD64, 0x1fd8, 0}}, // gcc knows no local-dynamic code here
	{"aarch64-pie", 0x18, TLSRelocation{LocalExec, 0, 0x28}},
	{"aarch64-pie-aligned", 0x18, TLSRelocation{LocalExec, 0, 0x98}},
	{"aarch64-pie-hidden", 0x18, TLSRelocation{LocalExec, 0, 0x28}},
	{"aarch64-pie-lld", 0x8, TLSRelocation{LocalExec, 0, 0x88}},
	{"aarch64-static", 0x18, TLSRelocation{LocalExec, 0, 0x28}},
	{"aarch64-staticpie", 0x18, TLSRelocation{LocalExec, 0, 0x28}},
	{"aarch64-tlsdesc-hidden.so", 0x18, TLSRelocation{TLSDESC, 0x2000, 0}},
	{"aarch64-tlsdesc-ld.so", 0x18, TLSRelocation{TLSDESC, 0x2010, 0}}, // as aarch64-ld.so
	{"aarch64-tlsdesc-lld-local.so", 0x8, TLSRelocation{TLSDESC, 0x2448, 0}},
	{"aarch64-tlsdesc-local.so", 0x18, TLSRelocation{TLSDESC, 0x2010, 0}},
	{"aarch64-tlsdesc.so", 0x18, TLSRelocation{TLSDESC, 0x2010, 0}},
	{"x86_64-gd-lld-local.so", 0x18, TLSRelocation{DTPMOD64, 0x24e8, 0}},
	{"x86_64-gd-local.so", 0x18, TLSRelocation{DTPMOD64, 0x2fd8, 0}},
	{"x86_64-gd.so", 0x18, TLSRelocation{DTPMOD64, 0x2fd8, 0}},
	{"x86_64-ie-local.so", 0x18, TLSRelocation{TPOFF64, 0x2fd8, 0}},
	{"x86_64-ie.so", 0x18, TLSRelocation{TPOFF64, 0x2fd8, 0}},
	{"x86_64-ld.so", 0x18, TLSRelocation{DTPMOD64, 0x2fd8, 0x18}},
	{"x86_64-pie", 0x18, TLSRelocation{LocalExec, 0, -8}},
	{"x86_64-pie-aligned", 0x18, TLSRelocation{LocalExec, 0, -0x68}},
	{"x86_64-pie-hidden", 0x18, TLSRelocation{LocalExec, 0, -8}},
	{"x86_64-pie-lld", 0x18, TLSRelocation{LocalExec, 0, -0x68}},
	{"x86_64-static", 0x18, TLSRelocation{LocalExec, 0, -8}},
	{"x86_64-staticpie", 0x18, TLSRelocation{LocalExec, 0, -8}},
	{"x86_64-tlsdesc-hidden.so", 0x18, TLSRelocation{TLSDESC, 0x3010, 0}},
	{"x86_64-tlsdesc-ld.so", 0x18, TLSRelocation{TLSDESC, 0x3000, 0x18}},
	{"x86_64-tlsdesc-lld.so", 0x18, TLSRelocation{TLSDESC, 0x2430, 0}},
	{"x86_64-tlsdesc-local.so", 0x18, TLSRelocation{TLSDESC, 0x3010, 0}},
	{"x86_64-tlsdesc.so", 0x18, TLSRelocation{TLSDESC, 0x3010, 0}},
}

// The prebuilt files that hide the variable from everybody.
var noThreadContexts = []string{"aarch64-tlsdesc-stripped.so", "x86_64-tlsdesc-stripped.so"}

func readThreadContexts(t testing.TB) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(otelPrebuilt)
	assert.Assert(t, err == nil && len(entries) != 0, "no files in %s (%v)", otelPrebuilt, err)
	files := make(map[string][]byte)
	for _, entry := range entries {
		files[entry.Name()] = testenv.ReadFile(t, filepath.Join(otelPrebuilt, entry.Name()))
	}
	return files
}

func TestPrebuiltThreadContexts(t *testing.T) {
	files := readThreadContexts(t)
	assert.Check(t, len(files) == len(threadContexts)+len(noThreadContexts),
		"%d files in %s, %d in the tables here", len(files), otelPrebuilt, len(threadContexts)+len(noThreadContexts))
	for _, want := range threadContexts {
		v, err := parseThreadContext(files[want.name])
		if err != nil {
			t.Errorf("%s: %v", want.name, err)
			continue
		}
		assert.Check(t, v.TLSOffset == want.tls && v.Relocation == want.relocation,
			"%s: %#x %+v, want %#x %+v", want.name, v.TLSOffset, v.Relocation, want.tls, want.relocation)
		f, err := parseFile(files[want.name])
		if err != nil || len(v.Segments) != len(f.Segments) || v.HTLHash != f.HTLHash || v.Machine != f.Machine {
			t.Errorf("%s: %+v, as a file %+v, %v", want.name, v.File, f, err)
		}
	}
	for _, name := range noThreadContexts {
		v, err := parseThreadContext(files[name])
		assert.Check(t, v == nil && errors.Is(err, ErrNoSymbols), "%s: %+v, %v", name, v, err)
	}
	for name, b := range readFixtures(t) {
		v, err := parseThreadContext(b)
		assert.Check(t, v == nil && errors.Is(err, ErrNoSymbols), "agent library %s: %+v, %v", name, v, err)
	}
}

// A file that has nothing of the kind costs as little as parsing it as a file, or a few pages more.
func TestThreadContextIsCheapWhereThereIsNone(t *testing.T) {
	without := newEdit(t, gnuFixture)
	without.put32(without.program(elf.PT_TLS, 0), 0)
	for _, test := range []struct {
		name     string
		contents []byte
		more     int // calls
	}{{"no PT_TLS", without.b, 0}, {"PT_TLS", readFixture(t, gnuFixture), 6}} {
		file, context := &meter{r: bytes.NewReader(test.contents)}, &meter{r: bytes.NewReader(test.contents)}
		size := int64(len(test.contents))
		_, err := ParseFile(file, size)
		assert.NilError(t, err)
		_, err = ParseThreadContext(context, size)
		assert.Check(t, errors.Is(err, ErrNoSymbols), "%s: %v", test.name, err)
		assert.Check(t, context.calls <= file.calls+test.more,
			"%s: %d reads, as a file %d", test.name, context.calls, file.calls)
	}
}

func TestCacheOfThreadContexts(t *testing.T) {
	c := newCache(t, 1)
	f := open(t, filepath.Join(otelPrebuilt, "x86_64-ld.so"))
	first, err := c.ThreadContext(f)
	assert.Assert(t, err == nil && first.Relocation.Kind == DTPMOD64, "%+v, %v", first, err)
	none := open(t, filepath.Join(prebuilt, gnuFixture+".so"))
	for range 2 {
		again, err := c.ThreadContext(f)
		assert.Check(t, again == first && err == nil, "%p, %v, want %p", again, err, first)
		v, err := c.ThreadContext(none)
		assert.Check(t, v == nil && errors.Is(err, ErrNoSymbols), "%+v, %v", v, err)
		// The same file as a library is another question.
		library, err := c.Library(none)
		assert.Check(t, err == nil && library.StorageAddr == 0x3020, "%+v, %v", library, err)
	}
	contexts, err := c.contexts()
	assert.NilError(t, err)
	m := contexts.Metrics()
	assert.Check(t, m.Hits == 3 && m.Misses == 2, "%d hits, %d misses", m.Hits, m.Misses)
	expectCounts(t, c, 1, 1)
	_, err = c.ThreadContext(os.NewFile(math.MaxInt32, "closed"))
	assert.Check(t, err != nil, "no error for a file that is not open")
}
