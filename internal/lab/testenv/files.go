package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
