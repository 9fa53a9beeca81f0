package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The prebuilt libraries. The values are those of readelf -Ws (addresses), -r (relocation; with -D
// where sections are stripped), -n (build id), -x .got (stored second words), and for the hash of
//
//	(head -c 4096 F; tail -c 4096 F; printf '\0\0\0\0\0\0\xHH\xHH') | sha256sum | cut -c1-32
//
// with the file's size in the place of HHHH.
var libraries = []struct {
	name         string
	storage, tls uint64
	kind         RelocationKind
	pair         uint64
	ids          string // build id and htlhash
}{
	{"aarch64-glibc-dtpmod", 0x2008, 0x18, DTPMOD64, 0x1fd0,
		"cafd66fe40f448efa07c0736ca8545c7e87a3d4e 00c80f3a5da1975471695ac2def21aa7"},
	{"aarch64-glibc-dtpmod-local", 0x2008, 0x18, DTPMOD64, 0x1fd8,
		"29eab6d01919938f8dd75611474cf5e7de0151c2 d9f9dcdff84a86aa235d3eeaea571538"},
	{"aarch64-glibc-dtpmod-nosections", 0x2008, 0x18, DTPMOD64, 0x1fd0,
		"cafd66fe40f448efa07c0736ca8545c7e87a3d4e fed939e5967e194f17f42cdd71dee2d0"},
	{"aarch64-glibc-tlsdesc", 0x2020, 0x18, TLSDESC, 0x2010,
		"4dc78f4d62622c9ba491ba35599485bd1fae2e12 accc8fb18bac897ea1803840368db498"},
	{"aarch64-glibc-tlsdesc-64k", 0x20020, 0x18, TLSDESC, 0x20010,
		"32ab45418819b4d9bde3ddd02c40b52271ebfcd7 8665a0c10cf94b2aa3c8ffad906075b1"},
	{"aarch64-glibc-tlsdesc-lld", 0x3710, 0x8, TLSDESC, 0x26f0,
		"98ac9586ea1e47183fa039c3b5b687ed6dff12bc 5a85b7f5f65b6a21b557290e7fc7d22a"},
	{"aarch64-glibc-tlsdesc-lld-local", 0x3730, 0x8, TLSDESC, 0x2710,
		"478120cbd04c5e805f3417af9f8ed90fb688832a 1c07f3442ca70c13300a751c37391455"},
	{"aarch64-glibc-tlsdesc-local", 0x2020, 0x18, TLSDESC, 0x2010,
		"9ef7e04711e20821b3206f201339723c25776228 3172849c947fc1e0fcc9caee35a00e05"},
	{"aarch64-glibc-tlsdesc-nosections", 0x2020, 0x18, TLSDESC, 0x2010,
		"4dc78f4d62622c9ba491ba35599485bd1fae2e12 1d46bb0ebecc2ab9d1481e1d716176fe"},
	{"aarch64-musl-dtpmod", 0x2008, 0x18, DTPMOD64, 0x1fd0,
		"fe8976fb57009e8148b7e0893f7e6c5ae661f530 ac64cbdec8c049887c6acd83fa18b666"},
	{"aarch64-musl-tlsdesc", 0x2020, 0x18, TLSDESC, 0x2010,
		"f2dfb780e3b692efec0acc43695df5e6e9ca5b3b 6664fc0aa9858de552a37da1a0185b92"},
	{"x86_64-glibc-dtpmod", 0x3008, 0x18, DTPMOD64, 0x2fd0,
		"69b76961f1a230a9075d9c4f633955216af1e4d4 4ef31ed5391315e13c43ea61b7898951"},
	{"x86_64-glibc-dtpmod-lld-local", 0x37b8, 0x18, DTPMOD64, 0x2778,
		"30d9b1dcf8a478760e7a7e64d5f01fcbd79065c6 bd81dba5ff46ca70b37b90ad97f277c9"},
	{"x86_64-glibc-dtpmod-local", 0x3008, 0x18, DTPMOD64, 0x2fd8,
		"742bfc936d12472542ffd7c864b6336aa6ab134d 7fdccab4d9b252b5aa644f396e22fd17"},
	{"x86_64-glibc-dtpmod-nosections", 0x3008, 0x18, DTPMOD64, 0x2fd0,
		"69b76961f1a230a9075d9c4f633955216af1e4d4 a394e1177150a8932cb7629621eb2442"},
	{"x86_64-glibc-tlsdesc", 0x3020, 0x18, TLSDESC, 0x3010,
		"bf8ba88cc5ccdc3f1438250886857dc24ae5119a 8e7bac1195d2c11c75641eaee7e937fd"},
	{"x86_64-glibc-tlsdesc-lld", 0x3680, 0x18, TLSDESC, 0x2648,
		"ffda5e2348fecfcc5ef25d4b9df6ac81f210f4ca 86a1a3a23a875a7f8ab51f7bcbed8e5b"},
	{"x86_64-glibc-tlsdesc-lld-local", 0x3670, 0x18, TLSDESC, 0x2638,
		"d51f1fd724e28862bb88a6ea9e9276d03f3df6ab 7f1b91b2d029c6dedf6dacb6407aa64c"},
	{"x86_64-glibc-tlsdesc-local", 0x3020, 0x18, TLSDESC, 0x3010,
		"720ca291c860be60d739aaf167f722295a7473ef f5d2d10c4b68d9e174d472adcf41aeea"},
	{"x86_64-glibc-tlsdesc-nosections", 0x3020, 0x18, TLSDESC, 0x3010,
		"bf8ba88cc5ccdc3f1438250886857dc24ae5119a b42c39e55b769b1e8106285484312829"},
	{"x86_64-glibc-tlsdesc-sysvhash", 0x3020, 0x18, TLSDESC, 0x3010, " c33cfd8777590b7f932b7673aab38605"},
	{"x86_64-musl-dtpmod", 0x3008, 0x18, DTPMOD64, 0x2fd0,
		"1e5b9f3cea3566a8a8169e1496966c619157e4f5 b29e31fd054d2562343506f1d7a4428b"},
	{"x86_64-musl-tlsdesc", 0x3020, 0x18, TLSDESC, 0x3010,
		"e230222c161a1e037a96eb98ad40d2bcf37ca686 3ae591009cac5ed74589bb207600c7c3"},
}

// The prebuilt libraries that cannot be used, and why.
var refused = map[string]error{
	"x86_64-glibc-initialexec": errNoRelocation,
	"aarch64-glibc-older":      ErrNoSymbols,
	"x86_64-glibc-older":       ErrNoSymbols,
	"x86_64-glibc-storageonly": errIncomplete,
	"x86_64-glibc-tlsonly":     errIncomplete,
}

func TestPrebuiltLibraries(t *testing.T) {
	fixtures := readFixtures(t)
	assert.Check(t, len(fixtures) == len(libraries)+len(refused),
		"%d libraries in %s, %d in the tables here", len(fixtures), prebuilt, len(libraries)+len(refused))
	for _, want := range libraries {
		t.Run(want.name, func(t *testing.T) {
			lib, err := parseLibrary(fixtures[want.name])
			assert.NilError(t, err)
			machine, _, _ := strings.Cut(strings.ToLower(lib.Machine.String()[len("EM_"):]), "-")
			assert.Check(t, strings.HasPrefix(want.name, machine), "machine %v", lib.Machine)
			compareVariables(t, lib, &Library{
				StorageAddr: want.storage,
				Variable:    Variable{TLSOffset: want.tls, Relocation: TLSRelocation{Kind: want.kind, Addr: want.pair}},
			})
			got := fmt.Sprintf("%x %x", lib.BuildID, lib.HTLHash)
			assert.Check(t, got == want.ids, "build id and htlhash %s, want %s", got, want.ids)
		})
	}
	for name, want := range refused {
		t.Run(name, func(t *testing.T) {
			lib, err := parseLibrary(fixtures[name])
			assert.Check(t, errors.Is(err, want) && lib == nil, "%v, %v, want %v", lib, err, want)
			_, err = parseFile(fixtures[name])
			assert.Check(t, err, "as a file")
		})
	}
}

// compareVariables compares what a library says of the two variables.
func compareVariables(t *testing.T, got, want *Library) {
	t.Helper()
	if got.StorageAddr != want.StorageAddr || got.TLSOffset != want.TLSOffset || got.Relocation != want.Relocation {
		t.Errorf("%#x %#x %+v, want %#x %#x %+v", got.StorageAddr, got.TLSOffset, got.Relocation,
			want.StorageAddr, want.TLSOffset, want.Relocation)
	}
}

// Only the section headers differ, and nothing of what is read depends on them.
func TestSectionHeadersAreNotUsed(t *testing.T) {
	e := newEdit(t, "x86_64-glibc-tlsdesc")
	want, err := parseLibrary(e.b)
	assert.NilError(t, err)
	const eShoff, eShentsize = 40, 58
	sections := e.b[e.get64(eShoff):]
	for i := range sections {
		sections[i] = 0xff
	}
	e.put64(eShoff, 0xfffffffffffffff0)
	e.put16(eShentsize, 1)
	got, err := parseLibrary(e.b)
	assert.NilError(t, err)
	compareVariables(t, got, want)
}

// A library of today with one of tomorrow beside it: the _v2 symbols are there too, other
// thread-local variables and their relocations come before and after, and a hundred names fill the
// hash tables.
const crowdedSource = `
#define E __attribute__((visibility("default")))
E _Thread_local void *elastic_apm_profiling_correlation_tls_v2;
E void *elastic_apm_profiling_correlation_process_storage_v2;
E _Thread_local int before[5];
E _Thread_local void *elastic_apm_profiling_correlation_tls_v1;
E void *elastic_apm_profiling_correlation_process_storage_v1;
E _Thread_local int after[7];
static _Thread_local long hidden = 3;
E void *touch(int i) {
	switch (i) {
	case 0: return &elastic_apm_profiling_correlation_tls_v2;
	case 1: return before;
	case 2: return &hidden;
	case 3: return after;
	case 4: return &elastic_apm_profiling_correlation_tls_v1;
	}
	return &elastic_apm_profiling_correlation_process_storage_v1;
}
#define F(n) E int f##n(void) { return n; }
#define G(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
G(1) G(2) G(3) G(4) G(5) G(6) G(7) G(8) G(9) G(10)
`

// Libraries that the machine's compiler makes now, against its own readelf.
func TestCompiledLibraries(t *testing.T) {
	compiler, readelf := testenv.NeedTool(t, "cc"), testenv.NeedTool(t, "readelf")
	dialects := map[RelocationKind]string{TLSDESC: "-mtls-dialect=gnu2", DTPMOD64: "-mtls-dialect=gnu"}
	if runtime.GOARCH == "arm64" {
		dialects = map[RelocationKind]string{TLSDESC: "-mtls-dialect=desc", DTPMOD64: "-mtls-dialect=trad"}
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "crowded.c")
	testenv.WriteFile(t, source, crowdedSource)
	for kind, dialect := range dialects {
		objects := make(map[string]string) // by optimization
		for _, optimization := range []string{"-O2", "-O0 -g"} {
			object := filepath.Join(dir, kind.String()+optimization+".o")
			args := []string{"-fPIC", "-c", "-o", object, dialect, source}
			run(t, compiler, append(args, strings.Fields(optimization)...)...)
			objects[optimization] = object
		}
		for _, flags := range []string{
			"-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv", "-Wl,--hash-style=both",
			"-Wl,-z,now", "-Wl,-z,norelro", "-Wl,-z,noseparate-code", "-Wl,-Bsymbolic", "-Wl,-s", "-O0 -g",
		} {
			t.Run(fmt.Sprint(kind, flags), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "crowded.so")
				args := []string{"-shared", "-o", path}
				if object := objects[flags]; object != "" {
					args = append(args, object)
				} else {
					args = append(args, objects["-O2"], flags)
				}
				run(t, compiler, args...)
				b := testenv.ReadFile(t, path)
				lib, err := parseLibrary(b)
				assert.NilError(t, err)
				want := readelfLibrary(t, readelf, path, kind)
				compareVariables(t, lib, &want)
				compareWithReadelf(t, readelf, path, &lib.File)
			})
		}
	}
}

// readelfLibrary is what readelf says of the exported variables of a library. A relocation without
// a symbol is the variable's when its addend, or with DTPMOD64 the word behind the one it applies
// to, is the variable's offset.
func readelfLibrary(t *testing.T, readelf, path string, kind RelocationKind) Library {
	t.Helper()
	var lib Library
	symbols := run(t, readelf, "--dyn-syms", "-W", path)
	for name, value := range map[string]*uint64{storageName: &lib.StorageAddr, tlsName: &lib.TLSOffset} {
		line := regexp.MustCompile(`(?m)^ *\d+: ([0-9a-f]{16}) +8 (?:TLS|OBJECT) .* ` + name + `$`)
		*value = parseHex(t, line.FindStringSubmatch(symbols))
	}
	relocations := run(t, readelf, "-r", "-W", path)
	line := regexp.MustCompile(`(?m)^([0-9a-f]{16}) .*_` + kind.String() + ` +(?:[0-9a-f]{16} ` + tlsName +
		` \+ 0|([0-9a-f]+))$`)
	for _, m := range line.FindAllStringSubmatch(relocations, -1) {
		addr := parseHex(t, m)
		switch {
		case m[2] == "", kind == TLSDESC && m[2] == strconv.FormatUint(lib.TLSOffset, 16),
			kind == DTPMOD64 && storedWord(t, path, addr+8) == lib.TLSOffset:
			lib.Relocation = TLSRelocation{Kind: kind, Addr: addr}
			return lib
		}
	}
	t.Fatalf("readelf shows no relocation of the variable:\n%s", relocations)
	return lib
}

// storedWord returns the eight bytes that the file holds for an address.
func storedWord(t *testing.T, path string, addr uint64) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			var b [8]byte
			_, err := p.ReadAt(b[:], int64(addr-p.Vaddr))
			assert.NilError(t, err)
			return binary.LittleEndian.Uint64(b[:])
		}
	}
	t.Fatalf("%#x is in no segment", addr)
	return 0
}

func parseHex(t *testing.T, match []string) uint64 {
	t.Helper()
	assert.Assert(t, match != nil, "readelf does not print the line that is looked for")
	v, err := strconv.ParseUint(strings.TrimPrefix(match[1], "0x"), 16, 64)
	assert.NilError(t, err)
	return v
}

func run(t testing.TB, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%v: %v\n%s", cmd, err, out)
	return string(out)
}

// A library can be cut off anywhere. What is left is refused for that, or means what the whole
// library means: never that it has no symbols.
func TestEveryPrefixOfALibrary(t *testing.T) {
	for i, name := range []string{
		"x86_64-glibc-tlsdesc", "x86_64-glibc-tlsdesc-sysvhash", "x86_64-glibc-dtpmod-lld-local",
		"aarch64-glibc-dtpmod-local", "aarch64-glibc-tlsdesc-lld",
	} {
		t.Run(name, func(t *testing.T) {
			whole := readFixture(t, name)
			want, err := parseLibrary(whole)
			assert.NilError(t, err)
			parsed, step := 0, 7 // which ends in each byte of a word in turn
			if i == 0 && !testing.Short() {
				step = 1
			}
			for size := 0; size < len(whole); size += step {
				got, err := parseLibrary(whole[:size])
				if err != nil {
					cut := errors.Is(err, errTruncated) || size < 4 && errors.Is(err, errNotELF)
					assert.Assert(t, cut, "%d bytes: %v", size, err)
					continue
				}
				parsed++
				compareVariables(t, got, want)
				assert.Assert(t, len(got.Segments) == len(want.Segments) && string(got.BuildID) == string(want.BuildID),
					"%d bytes: %+v, want %+v", size, got, want)
			}
			assert.Check(t, parsed != 0, "no prefix was enough, though section headers and strings come last")
		})
	}
}
