package unwind

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Lines of Python 3.10 are left out since this version of the engine reads half of each table of lines, and the
// engine names versions as is expected. With another version, look whether walkLineTable still stops at half:
// if not, python310 goes.
func TestPython310(t *testing.T) {
	assert.Check(t, strings.Contains(string(testenv.ReadFile(t, "../../../go.mod")),
		"go.opentelemetry.io/ebpf-profiler v0.0.202633\n"), "another version of the engine")
	version, python := pythonFile(t)
	kind := runtimeBy(func(k *runtimeKind) bool { return k.name == "Python" })
	file := pfelf.NewReference(python, pfelf.SystemOpener)
	data, err := kind.loader(noTables{}, interpreter.NewLoaderInfo(0, file, nil))
	assert.Assert(t, err == nil && data != nil, "%s: %v", python, err)
	assert.Check(t, fmt.Sprint(data) == version, "%v is %s", data, version)
	assert.Check(t, python310 == "Python 3.10")
}

// pythonFile returns the version of python3, and the file that has its code.
func pythonFile(t testing.TB) (version, python string) {
	const script = "import sys; files = [line.split()[-1] for line in open('/proc/self/maps') if 'libpython' in line]\n" +
		"print('Python %d.%d' % sys.version_info[:2], (files or [sys.executable])[0])"
	text, err := exec.Command(testenv.NeedTool(t, "python3"), "-c", script).Output()
	assert.NilError(t, err)
	at := strings.LastIndex(string(text), " ")
	python, err = filepath.EvalSymlinks(strings.TrimSpace(string(text[at+1:])))
	assert.NilError(t, err)
	return string(text[:at]), python
}
