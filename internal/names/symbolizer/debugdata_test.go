package symbolizer

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbols"
	"correlator/profile"
)

// toolchain returns what names files of a directory, and what runs the C compiler, or objcopy, there.
func toolchain(t *testing.T) (path func(name string) string, run func(command ...string)) {
	t.Helper()
	testenv.NeedTool(t, "cc")
	testenv.NeedTool(t, "objcopy")
	dir := t.TempDir()
	return func(name string) string { return filepath.Join(dir, name) }, func(command ...string) {
		t.Helper()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		assert.NilError(t, err, "%v\n%s", command, out)
	}
}

// A stripped file's functions are named by its .gnu_debugdata; one that is broken costs none of the other names.
func TestDebugData(t *testing.T) {
	path, run := toolchain(t)
	testenv.WriteFile(t, path("p.c"), []byte("void exported(void) {}\nstatic __attribute__((used)) void hidden(void) {}\n"+
		"int main(void) { return 0; }\n"))
	run("cc", "-O1", "-rdynamic", "-o", path("full"), path("p.c"))
	run("objcopy", "--only-keep-debug", path("full"), path("debug"))
	var packed bytes.Buffer
	w, err := xz.NewWriter(&packed)
	assert.NilError(t, err)
	_, err = w.Write(testenv.ReadFile(t, path("debug")))
	assert.NilError(t, err)
	assert.NilError(t, w.Close())
	testenv.WriteFile(t, path("good.xz"), packed.Bytes())
	testenv.WriteFile(t, path("bad.xz"), packed.Bytes()[:packed.Len()/2])
	addr := testenv.Symbols(t, path("full"))
	for section, want := range map[string]string{"good.xz": "hidden", "bad.xz": ""} {
		run("objcopy", "--strip-all", "--add-section", ".gnu_debugdata="+path(section), path("full"), path("mini"))
		mini, err := os.Open(path("mini"))
		assert.NilError(t, err)
		info, err := mini.Stat()
		assert.NilError(t, err)
		r := reading{newServer("/proc", nil), profile.FileID{1}, []uint64{addr["hidden"], addr["exported"]},
			symbols.NewBudget(1 << 20)}
		names := r.source(&source{file: mini, size: info.Size()})
		mini.Close()
		assert.Check(t, names.own.Name(addr["hidden"]) == want && names.own.Name(addr["exported"]) == "exported" &&
			names.full == (want != "") && names.err == nil && (names.partial == nil) == (want != ""), "%s: %q, %q, %+v",
			section, names.own.Name(addr["hidden"]), names.own.Name(addr["exported"]), names)
	}
}

// linkedProgram compiles a program that sleeps, whose names are in the debug file that it links to, and returns it with
// that file's path and the address of its function hidden.
func linkedProgram(t *testing.T, buildID string) (program, debug string, hidden uint64) {
	t.Helper()
	path, run := toolchain(t)
	testenv.WriteFile(t, path("p.c"), []byte("#include <unistd.h>\n"+
		"static __attribute__((used)) void hidden(void) {}\n"+
		"int main(void) { char c; return write(1, \"x\", 1) != 1 || read(0, &c, 1) != 0; }\n"))
	run("cc", "-O1", "-Wl,--build-id="+buildID, "-o", "full", "p.c")
	run("objcopy", "--only-keep-debug", "full", "p.debug")
	run("objcopy", "--strip-all", "--add-gnu-debuglink=p.debug", "full", "program")
	hidden = testenv.Symbols(t, path("full"))["hidden"]
	return path("program"), path("p.debug"), hidden
}

// A stripped file without a build id, as those of Alpine, has the names of the debug file that it links to, if that is
// the right one.
func TestDebugLink(t *testing.T) {
	path, debug, hidden := linkedProgram(t, "none")
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	assert.NilError(t, err)
	defer root.Close()
	server := newServer("/proc", nil)
	_, withID, _ := linkedProgram(t, "sha1")
	others := [][]byte{append(testenv.ReadFile(t, debug), 0), testenv.ReadFile(t, withID), nil} // of other builds
	for i, want := range []string{"hidden", "", ""} {
		program, err := os.Open(path)
		assert.NilError(t, err)
		info, err := program.Stat()
		assert.NilError(t, err)
		r := reading{server, profile.FileID{1}, []uint64{hidden}, symbols.NewBudget(1 << 20)}
		names := r.source(&source{file: program, size: info.Size(), path: program.Name()})
		program.Close()
		assert.Check(t, !names.full && names.own.Name(hidden) == "", "%+v", names)
		found, err := r.debugFile(root, &names, true)
		assert.Check(t, errors.Is(err, symbols.ErrLinked) == (want == "") && found.Name(hidden) == want,
			"%q, not %q: %v", found.Name(hidden), want, err)
		assert.NilError(t, os.Remove(debug))
		testenv.WriteFile(t, debug, others[i])
	}
}

// That the host has another debug file is no failure if the process has the right one.
func TestDebugLinkOfHost(t *testing.T) {
	path, debug, hidden := linkedProgram(t, "none")
	open := func(dir string) *os.File {
		root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		assert.NilError(t, err)
		t.Cleanup(func() { root.Close() })
		return root
	}
	server, id, host := newServer("/proc", nil), profile.FileID{1}, t.TempDir()
	testenv.WriteFile(t, filepath.Join(host, "usr/lib/debug", debug), append(testenv.ReadFile(t, debug), 0))
	server.host, server.addrs[id] = open(host), []uint64{hidden}
	for root, want := range map[string]string{"/": "hidden", t.TempDir(): ""} {
		program, err := os.Open(path)
		assert.NilError(t, err)
		info, err := program.Stat()
		assert.NilError(t, err)
		p := &process{root: open(root), budget: symbols.NewBudget(1 << 20), files: map[profile.FileID]*source{
			id: {file: program, size: info.Size(), path: path}}}
		got := server.readNames(p)
		program.Close()
		assert.Check(t, got.name(id, hidden) == want && errors.Is(got.failures[id], symbols.ErrLinked) == (want == ""),
			"%q, not %q: %v", got.name(id, hidden), want, got.failures)
	}
}

// What neither a file nor its debug file has in a table of symbols is named by the DWARF of either; a table of either
// is preferred. Of too many files at a time it is not read, which is said, and neither is what is no DWARF.
func TestDWARF(t *testing.T) {
	path, run := toolchain(t)
	testenv.WriteFile(t, path("p.c"), "static __attribute__((used)) void hidden(void) {}\nint main(void) { return 0; }\n")
	run("cc", "-g", "-O1", "-Wl,--build-id=none", "-o", "full", "p.c")
	hidden := testenv.Symbols(t, path("full"))["hidden"]
	withoutTable := func(from, to string) {
		b := testenv.ReadFile(t, path(from))
		f, err := elf.NewFile(bytes.NewReader(b))
		assert.NilError(t, err)
		i := slices.IndexFunc(f.Sections, func(s *elf.Section) bool { return s.Type == elf.SHT_SYMTAB })
		const sectionBytes, kind = 64, 4
		at := int(binary.LittleEndian.Uint64(b[0x28:])) + sectionBytes*i + kind
		binary.LittleEndian.PutUint32(b[at:], uint32(elf.SHT_NULL))
		testenv.WriteFile(t, path(to), b)
	}
	run("objcopy", "--redefine-sym", "hidden=table", "full", "renamed")
	run("objcopy", "--only-keep-debug", "renamed", "table.debug")
	run("objcopy", "--only-keep-debug", "full", "dwarf.table")
	withoutTable("dwarf.table", "dwarf.debug")
	run("objcopy", "--strip-all", "--add-gnu-debuglink=table.debug", "full", "stripped-table")
	run("objcopy", "--strip-all", "--add-gnu-debuglink=dwarf.debug", "full", "stripped-dwarf")
	withoutTable("full", "dwarf")
	run("objcopy", "--update-section", ".debug_abbrev=p.c", "dwarf.table", "broken.table")
	withoutTable("broken.table", "broken")

	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	assert.NilError(t, err)
	defer root.Close()
	server := newServer("/proc", nil)
	read := func(name string) (own, debug string, err, debugErr error) {
		file, err := os.Open(path(name))
		assert.NilError(t, err)
		defer file.Close()
		info, err := file.Stat()
		assert.NilError(t, err)
		r := reading{server, profile.FileID{1}, []uint64{hidden}, symbols.NewBudget(1 << 20)}
		names := r.source(&source{file: file, size: info.Size(), path: file.Name()})
		q, debugErr := r.debugFile(root, &names, true)
		return names.own.Name(hidden), q.Name(hidden), names.partial, debugErr
	}
	for _, test := range []struct{ name, own, debug string }{
		{"full", "hidden", ""},
		{"renamed", "table", ""},
		{"dwarf", "hidden", ""},
		{"stripped-table", "", "table"},
		{"stripped-dwarf", "", "hidden"},
	} {
		own, debug, err, debugErr := read(test.name)
		assert.Check(t, own == test.own && debug == test.debug && err == nil && debugErr == nil, "%s: %q, %q, %v, %v",
			test.name, own, debug, err, debugErr)
	}
	own, _, err, _ := read("broken")
	assert.Check(t, own == "" && err != nil, "%q, %v", own, err)
	server = newServer("/proc", nil)
	for range maxDWARF {
		server.dwarf <- struct{}{}
	}
	own, _, err, _ = read("dwarf")
	assert.Check(t, own == "" && errors.Is(err, errDWARFs), "%q, %v", own, err)
	_, debug, _, err := read("stripped-dwarf")
	assert.Check(t, debug == "" && errors.Is(err, errDWARFs), "%q, %v", debug, err)
	<-server.dwarf
	own, _, err, _ = read("dwarf")
	assert.Check(t, own == "hidden" && err == nil && len(server.dwarf) == maxDWARF-1, "%q, %v", own, err)
}

// A debug file is read for its checksum once for all requests of a Live, right or wrong, until it
// changes; not at all if the build ids of both files say that it is the right one. As much is read for
// one request as may be; what is then not known is a failure, which passes. One that is not the right one
// is a failure, too: else nobody knew why there are no names.
func TestDebugLinkOfRequests(t *testing.T) {
	for _, buildID := range []string{"none", "sha1"} {
		path, debug, hidden := linkedProgram(t, buildID)
		id, program := startFile(t, path)
		s := newServer("/proc", nil)
		expect := func(bytes int, name string, failure Failure) {
			t.Helper()
			s.linkedBytes = int64(bytes)
			asked := []file{{ID: program.ID, Path: program.path(), Addrs: []uint64{hidden}}}
			a := s.name(&request{ID: id, Files: asked})
			assert.Assert(t, len(a.Files) == 1)
			got := ""
			for _, n := range a.Files[0].Names {
				got += string(n.Name)
			}
			assert.Check(t, got == name && a.Files[0].Failure == failure, "%s: %q, %d, not %q", buildID, got,
				a.Files[0].Failure, name)
		}
		content := testenv.ReadFile(t, debug)
		if buildID == "sha1" {
			expect(0, "hidden", NoFailure)
			continue
		}
		expect(len(content)-1, "", Unreadable)
		expect(len(content), "hidden", NoFailure)
		expect(0, "hidden", NoFailure)
		testenv.WriteFile(t, debug+".new", append(content, 0)) // of another build
		assert.NilError(t, os.Rename(debug+".new", debug))
		expect(len(content), "", Unreadable)
		expect(len(content)+1, "", Unreadable)
		expect(0, "", Unreadable)
	}
}

// What is remembered of debug files is bounded, as is what is read of several; that one could not be read is not
// remembered.
func TestVerdicts(t *testing.T) {
	v := &verdicts{right: make(map[linked]bool)}
	for i := range keptVerdicts {
		v.right[linked{crc: uint32(i)}] = true
	}
	file, err := os.Open(os.DevNull) // empty: its checksum is 0
	assert.NilError(t, err)
	left := &allowance{left: 3}
	key := elfsym.FileKey{Ino: 1, Size: 2}
	assert.NilError(t, v.check(file, key, elfsym.DebugLink{}, left))
	assert.DeepEqual(t, v.right, map[linked]bool{{file: key}: true})
	key.Ino++
	assert.ErrorIs(t, v.check(file, key, elfsym.DebugLink{}, left), errLater)
	key.Size = 1
	assert.NilError(t, file.Close())
	assert.ErrorIs(t, v.check(file, key, elfsym.DebugLink{}, left), os.ErrClosed)
	assert.Check(t, len(v.right) == 1 && left.left == 0)
}
