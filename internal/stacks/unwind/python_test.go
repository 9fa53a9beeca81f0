package unwind

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Of CPython from 3.13 on, the thread's state is that which native code without the interpreter's lock keeps, where the
// C library says how to find it, and where its key is; in 3.14, None has the tag that references in frames have. Others
// are not changed.
func TestCorrectPython(t *testing.T) {
	memory := bytes.NewReader([]byte{
		0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, // at 8
		0, 0, 0, 0, 7, 0, 0, 0, // at 16
		1, 0, 0, 0, 0, 4, 0, 0, // at 24
	})
	tsd := support.TSDInfo{Multiplier: 16}
	type python = support.PyProcInfo
	for i, test := range []struct{ info, want python }{
		{python{Version: 0x30c, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16},
			python{Version: 0x30c, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16},
			python{Version: 0x30d, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16}},
		{python{Version: 0x30e, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16},
			python{Version: 0x30e, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 17}},
		{python{Version: 0x30e, Tls_offset: -8, AutoTLSKeyAddr: 8},
			python{Version: 0x30e, Tls_offset: -8, AutoTLSKeyAddr: 8}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 16},
			python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 16}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 24},
			python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 24}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 28},
			python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 28}},
	} {
		correctPython(&test.info, memory)
		assert.Check(t, test.info == test.want, "%d: %+v", i, test.info)
	}
}

// Texts of a real CPython are read as what they are, whatever letters they have.
func TestPythonText(t *testing.T) {
	const script = `
import sys
texts = ["ascii", "na\u00efve", "\u0444\u0443\u043d\u043a\u0446\u0438\u044f", "\U0001d518ni", "\u6e2c" * 600]
print(sys.version_info[1], *map(id, texts), flush=True)
sys.stdin.read()`
	cmd := exec.Command(testenv.NeedTool(t, "python3"), "-c", script)
	_, stdout := testenv.Start(t, cmd)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	assert.NilError(t, err)
	fields := strings.Fields(line)
	texts := newPythonText("Python 3." + fields[0])
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid))
	assert.NilError(t, err)
	defer memory.Close()
	for i, want := range []string{"ascii", "naïve", "функция", "𝔘ni", strings.Repeat("測", 340)} {
		object, err := strconv.ParseInt(fields[1+i], 10, 64)
		assert.NilError(t, err)
		var b [textBytes]byte
		n, err := texts.read(memory, b[:], object+texts.ascii)
		assert.NilError(t, err)
		text, _, _ := bytes.Cut(b[:n], []byte{0})
		assert.Check(t, string(text) == want, "%q instead of %q", text, want)
	}
}

// Each layout has its texts, and what is no text is as it is.
func TestPythonTextLayouts(t *testing.T) {
	for version, at := range map[string]struct{ ascii, other, kind int }{
		"Python 3.11": {48, 72, 2}, "Python 3.13": {40, 56, 2}, "Python 3.14": {40, 56, 16},
	} {
		texts := newPythonText(version)
		for state, want := range map[uint32]string{
			1 | 1<<3:        "\u00e9\u00e8\ufffd\u00e7", // one byte each, compact
			2 | 1<<3:        "\ue8e9\ue700\ufffd\ufffd",
			4 | 1<<3:        "\ufffd\ufffd\ufffd\ufffd",
			1 | 1<<3 | 1<<4: "as is", // ASCII
			1:               "as is", // not compact
			3 | 1<<3:        "as is",
		} {
			memory := make([]byte, at.ascii+textBytes)
			binary.LittleEndian.PutUint64(memory[16:], 4)
			binary.LittleEndian.PutUint32(memory[32:], 1|state<<at.kind)
			copy(memory[at.ascii:], "as is\x00")
			copy(memory[at.other:], "\xe9\xe8\x00\xe7")
			var b [textBytes]byte
			n, err := texts.read(bytes.NewReader(memory), b[:], int64(at.ascii))
			assert.NilError(t, err)
			text, _, _ := bytes.Cut(b[:n], []byte{0})
			assert.Check(t, string(text) == want, "%s, %b: %q instead of %q", version, state, text, want)
			n, _ = texts.read(bytes.NewReader(memory), b[:5], int64(at.ascii))
			assert.Check(t, string(b[:n]) == "as is", "%s: %q", version, b[:n])
		}
	}
	assert.Check(t, newPythonText("V8 10.2") == nil)
}
