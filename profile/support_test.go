package profile

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// library is an ELF file with the segments of an ordinary library.
const library = "../testdata/lib/prebuilt/x86_64-glibc-tlsdesc.so"

// pace is so slow that no wait depends on how long an update took.
var pace = Pace{Shortest: time.Hour, Longest: 60 * time.Hour}

func newFiles(t testing.TB) *Files {
	t.Helper()
	files, err := NewFiles("/proc", 256)
	assert.NilError(t, err)
	return files
}

// at is the frame of an address in a file, or of none.
func at(file *File, addr uint64) Frame { return Frame{File: file, Address: addr} }

// fakeProcess has the mappings that a test gives it. The path of a mapping is that of the file.
type fakeProcess struct {
	mappings []procscan.Mapping
	err      error
	opened   []string
	onRead   func()
}

func (p *fakeProcess) ExecutableMappings() ([]procscan.Mapping, error) {
	if p.onRead != nil {
		p.onRead()
	}
	return append([]procscan.Mapping(nil), p.mappings...), p.err
}

func (p *fakeProcess) Files(mappings []procscan.Mapping) (results []FileResult) {
	for _, m := range mappings {
		p.opened = append(p.opened, m.Path)
		results = append(results, parseFile(os.Open(m.Path)))
	}
	return results
}

// parseFile does what Process.Files has to.
func parseFile(file *os.File, err error) FileResult {
	if err != nil {
		return FileResult{Err: err}
	}
	defer file.Close()
	key, err := elfsym.Identify(file)
	if err != nil {
		return FileResult{Err: fmt.Errorf("%w: %w", ErrNotRead, err)}
	}
	parsed, err := elfsym.ParseFile(file, key.Size)
	if err != nil && !elfsym.IsContentError(err) {
		return FileResult{Err: fmt.Errorf("%w: %w", ErrNotRead, err)}
	}
	return FileResult{Key: key, File: parsed}
}

// liveProcess reads a running process as the agent does.
type liveProcess struct{ handle *procscan.Handle }

func openProcess(t testing.TB, pid int) liveProcess {
	t.Helper()
	process, err := procfs.NewProc(pid)
	assert.NilError(t, err)
	stat, err := process.Stat()
	assert.NilError(t, err)
	handle, err := procscan.OpenProcess("/proc", procscan.ProcessID{PID: pid, StartTime: stat.Starttime})
	assert.NilError(t, err)
	t.Cleanup(func() { handle.Close() })
	return liveProcess{handle}
}

func (p liveProcess) ExecutableMappings() ([]procscan.Mapping, error) {
	all, err := p.handle.ExecutableMemory()
	if errors.Is(err, procscan.ErrTooMany) {
		err = nil
	}
	return all, err
}

func (p liveProcess) Files(mappings []procscan.Mapping) (results []FileResult) {
	for _, m := range mappings {
		results = append(results, parseFile(p.handle.OpenMapped(m)))
	}
	return results
}

// mapping returns the first mapping of a live process with a path.
func (p liveProcess) mapping(t testing.TB, path string) procscan.Mapping {
	t.Helper()
	found, err := p.ExecutableMappings()
	assert.NilError(t, err)
	for _, m := range found {
		if m.Path == path {
			return m
		}
	}
	t.Fatalf("process %d has no executable mapping of %s", p.handle.Identity().PID, path)
	return procscan.Mapping{}
}

// space returns the address space of a live process.
func (p liveProcess) space(t testing.TB, files *Files) *AddressSpace {
	t.Helper()
	space := NewAddressSpace(files, pace)
	assert.NilError(t, space.Update(time.Now(), p))
	return space
}

// stackProgram is a running testdata/stack.c and what it printed.
type stackProgram struct {
	liveProcess
	stack     []uint64
	functions map[string]uint64
	end       func()
}

// buildStackProgram builds testdata/stack.c as a program that can lie at any address.
func buildStackProgram(t testing.TB) string {
	t.Helper()
	return testenv.Compile(t, "cc", "testdata/stack.c", "-fPIE", "-pie", "-Wl,--build-id")
}

func startStackProgram(t testing.TB, program string) *stackProgram {
	t.Helper()
	command := exec.Command(program)
	stdin, stdout := testenv.Start(t, command)
	p := &stackProgram{functions: make(map[string]uint64)}
	p.end = func() {
		stdin.Close()
		command.Wait()
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "ready":
			p.liveProcess = openProcess(t, command.Process.Pid)
			return p
		case "function":
			p.functions[words[1]] = parseHex(t, words[2])
		case "stack":
			for _, word := range words[1:] {
				p.stack = append(p.stack, parseHex(t, word))
			}
		}
	}
	t.Fatalf("%s ended", program)
	return nil
}

// libraryMapping is the mapping of the executable segment of an ELF file, page by page as loaders
// map it, at some address.
func libraryMapping(t testing.TB, path string, start uint64) procscan.Mapping {
	t.Helper()
	f, err := elf.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			m := fileMapping(t, path, start, p.Off&^0xfff)
			m.End = start + (p.Off%0x1000+p.Filesz+0xfff)&^0xfff
			return m
		}
	}
	t.Fatalf("%s has no executable segment", path)
	return procscan.Mapping{}
}

// fileMapping is a mapping of a page of any file.
func fileMapping(t testing.TB, path string, start, offset uint64) procscan.Mapping {
	t.Helper()
	info, err := os.Stat(path)
	assert.NilError(t, err)
	path, err = filepath.Abs(path)
	assert.NilError(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	return procscan.Mapping{Start: start, End: start + 0x1000, Offset: offset, Dev: stat.Dev, Ino: stat.Ino, Path: path}
}

func update(t testing.TB, space *AddressSpace, p Process) {
	t.Helper()
	assert.NilError(t, space.Update(time.Now(), p))
}

// parse parses a file with elfsym.
func parse(t testing.TB, path string) *elfsym.File {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	info, err := f.Stat()
	assert.NilError(t, err)
	parsed, err := elfsym.ParseFile(f, info.Size())
	assert.NilError(t, err)
	return parsed
}

func parseHex(t testing.TB, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 16, 64)
	assert.NilError(t, err)
	return n
}

func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}
