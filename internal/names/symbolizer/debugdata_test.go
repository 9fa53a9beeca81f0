package symbolizer

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbols"
	"correlator/profile"
)

// A stripped file's functions are named by its .gnu_debugdata; one that is broken costs none of the other names.
func TestDebugData(t *testing.T) {
	cc, objcopy, dir := testenv.NeedTool(t, "cc"), testenv.NeedTool(t, "objcopy"), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	run := func(command ...string) {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		assert.NilError(t, err, "%v\n%s", command, out)
	}
	testenv.WriteFile(t, path("p.c"), []byte("void exported(void) {}\nstatic __attribute__((used)) void hidden(void) {}\n"+
		"int main(void) { return 0; }\n"))
	run(cc, "-O1", "-rdynamic", "-o", path("full"), path("p.c"))
	run(objcopy, "--only-keep-debug", path("full"), path("debug"))
	var packed bytes.Buffer
	w, err := xz.NewWriter(&packed)
	assert.NilError(t, err)
	_, err = w.Write(testenv.ReadFile(t, path("debug")))
	assert.NilError(t, err)
	assert.NilError(t, w.Close())
	testenv.WriteFile(t, path("good.xz"), packed.Bytes())
	testenv.WriteFile(t, path("bad.xz"), packed.Bytes()[:packed.Len()/2])
	file, err := elf.Open(path("full"))
	assert.NilError(t, err)
	defer file.Close()
	list, err := file.Symbols()
	assert.NilError(t, err)
	addr := make(map[string]uint64)
	for _, s := range list {
		addr[s.Name] = s.Value
	}
	for section, want := range map[string]string{"good.xz": "hidden", "bad.xz": ""} {
		run(objcopy, "--strip-all", "--add-section", ".gnu_debugdata="+path(section), path("full"), path("mini"))
		mini, err := os.Open(path("mini"))
		assert.NilError(t, err)
		info, err := mini.Stat()
		assert.NilError(t, err)
		r := reading{newServer("/proc", nil), profile.FileID{1}, []uint64{addr["hidden"], addr["exported"]},
			symbols.NewBudget(1 << 20)}
		names := r.source(&source{file: mini, size: info.Size()})
		mini.Close()
		assert.Check(t, names.own.Name(addr["hidden"]) == want && names.own.Name(addr["exported"]) == "exported" &&
			names.full == (want != ""), "%s: %q, %q, %+v", section, names.own.Name(addr["hidden"]),
			names.own.Name(addr["exported"]), names)
	}
}

// A stripped file without a build id, as those of Alpine, has the names of the debug file that it links to, if that is
// the right one.
func TestDebugLink(t *testing.T) {
	cc, objcopy, dir := testenv.NeedTool(t, "cc"), testenv.NeedTool(t, "objcopy"), t.TempDir()
	run := func(command ...string) {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		assert.NilError(t, err, "%v\n%s", command, out)
	}
	testenv.WriteFile(t, filepath.Join(dir, "p.c"), []byte("static __attribute__((used)) void hidden(void) {}\n"+
		"int main(void) { return 0; }\n"))
	run(cc, "-O1", "-Wl,--build-id=none", "-o", "full", "p.c")
	run(objcopy, "--only-keep-debug", "full", "p.debug")
	run(objcopy, "--strip-all", "--add-gnu-debuglink=p.debug", "full", "program")
	full, err := elf.Open(filepath.Join(dir, "full"))
	assert.NilError(t, err)
	defer full.Close()
	list, err := full.Symbols()
	assert.NilError(t, err)
	var hidden uint64
	for _, s := range list {
		if s.Name == "hidden" {
			hidden = s.Value
		}
	}
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	assert.NilError(t, err)
	defer root.Close()
	server := newServer("/proc", nil)
	for _, want := range []string{"hidden", ""} {
		program, err := os.Open(filepath.Join(dir, "program"))
		assert.NilError(t, err)
		info, err := program.Stat()
		assert.NilError(t, err)
		r := reading{server, profile.FileID{1}, []uint64{hidden}, symbols.NewBudget(1 << 20)}
		names := r.source(&source{file: program, size: info.Size(), path: program.Name()})
		program.Close()
		assert.Check(t, !names.full && names.own.Name(hidden) == "", "%+v", names)
		found := r.debugFile(root, &names, true)
		assert.Check(t, found.Name(hidden) == want, "%q, not %q", found.Name(hidden), want)
		other := append(testenv.ReadFile(t, filepath.Join(dir, "p.debug")), 0) // of another build
		assert.NilError(t, os.Remove(filepath.Join(dir, "p.debug")))
		testenv.WriteFile(t, filepath.Join(dir, "p.debug"), other)
	}
}
