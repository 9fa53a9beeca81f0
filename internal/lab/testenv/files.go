package testenv

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// ReadFile returns the contents of a file.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	assert.NilError(t, err)
	return content
}

// WriteFile writes a file and creates its parent directories.
func WriteFile[T string | []byte](t testing.TB, path string, content T) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	assert.NilError(t, errors.Join(err, os.WriteFile(path, []byte(content), 0o644)))
}

// WriteProgram writes a file that may be executed at once: no child that another goroutine starts
// meanwhile has it open for writing, which would keep the kernel from executing it (ETXTBSY).
func WriteProgram(t testing.TB, path string, content []byte, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	assert.NilError(t, os.WriteFile(path, content, mode))
}

// Unhex returns the bytes that hexadecimal digits are, between which white space may be.
func Unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	assert.NilError(t, err)
	return b
}

// Symbols returns the values of an ELF file's symbols by their names.
func Symbols(t testing.TB, path string) map[string]uint64 {
	t.Helper()
	f, err := elf.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	assert.NilError(t, err)
	values := make(map[string]uint64)
	for _, s := range symbols {
		values[s.Name] = s.Value
	}
	return values
}

// CompileNamed compiles a program whose one local function, checkout, has its name in front of much else, in a part
// of the file that is not hashed for its id. It writes a byte, and ends with its input.
func CompileNamed(t testing.TB) []byte {
	t.Helper()
	source := "#include <unistd.h>\nstatic __attribute__((noinline, used)) void checkout(void) { __asm__ volatile(\"\"); }\n"
	for _, c := range "abc" {
		source += "void " + strings.Repeat(string(c), 3000) + "(void) {}\n"
	}
	source += "int main(void) { char c; checkout(); return write(1, \"x\", 1) != 1 || read(0, &c, 1) != 0; }\n"
	path := filepath.Join(t.TempDir(), "program.c")
	WriteFile(t, path, source)
	return ReadFile(t, Compile(t, "cc", path))
}

// Compile compiles a C source with warnings as errors and returns the path of the test's own copy of the
// program. The compiler is a program that NeedTool looks up; options follow the source. The same text with
// the same options is compiled once.
func Compile(t testing.TB, compiler, source string, options ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	key := fmt.Sprintf("%q %q %q", compiler, options, ReadFile(t, source))
	if program, done := compiled.Load(key); done {
		WriteProgram(t, path, program.([]byte), 0o755)
		return path
	}
	args := append([]string{"-Wall", "-Wextra", "-Werror", "-O1", "-o", path, source}, options...)
	output, err := exec.Command(NeedTool(t, compiler), args...).CombinedOutput()
	assert.NilError(t, err, "compiling %s: %v\n%s", source, err, output)
	compiled.Store(key, ReadFile(t, path))
	return path
}

// compiled are the programs that were compiled, by all that they depend on.
var compiled sync.Map

// Start starts a program that ends with its standard input, at the latest at the end of the test.
// Its standard error is that of the test unless it is set.
func Start(t testing.TB, cmd *exec.Cmd) (stdin io.WriteCloser, stdout io.Reader) {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	assert.NilError(t, errors.Join(err1, err2))
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // how it ended is for the test to check
	})
	return stdin, stdout
}
