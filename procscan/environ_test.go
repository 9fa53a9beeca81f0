package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

func TestParseEnviron(t *testing.T) {
	long := strings.Repeat("x", maxVariableBytes)
	rest := strings.Repeat("\x00", maxEnvironBytes-len("B=2\x00")) // all that is read, but for another variable
	for text, want := range map[string]map[string]string{
		"":                                 {},
		"A=1\x00B=2\x00":                   {"A": "1", "B": "2"},
		"C=\x00B=2=3\x00":                  {"B": "2=3"},
		"A=1\x00A=2\x00":                   {"A": "1"},
		"A=\x00":                           {"A": ""},
		"A\x00=A=1\x00AA=1\x00":            {},
		"B=2\x00A=1":                       {"B": "2"}, // perhaps 10
		"\x00\x00\xff\x00A=\xff\n\x00":     {"A": "\xff\n"},
		"A=" + long + "\x00":               {"A": long},
		"A=" + long + "x\x00A=1\x00B=\x00": {"B": ""},
		"A=" + strings.Repeat(long, 9) + "\x00A=1\x00B=2\x00":      {"B": "2"}, // longer than what is read at once
		strings.Repeat(long, 5) + "B=1\x00" + long + "\x00B=2\x00": {"B": "2"},
		"A=1\x00" + strings.Repeat(long, 5):                        {"A": "1"},
		"A=1\x00B=" + strings.Repeat(long, 5):                      {"A": "1"},
		"A=1\x00" + rest[4:] + "B=2\x00":                           {"A": "1", "B": "2"},
		"A=1\x00" + rest[3:] + "B=2\x00":                           {"A": "1"},
	} {
		got, err := parseEnviron(iotest.HalfReader(strings.NewReader(text)), []string{"A", "B"})
		isLong := strings.Contains(text, "A="+long+"x") || strings.Contains(text, "\x00B="+long+"x") ||
			len(text) > maxEnvironBytes
		assert.Check(t, errors.Is(err, ErrLong) == isLong && (err == nil || isLong) && reflect.DeepEqual(got, want),
			"%.40q: %.40q, %v", text, got, err)
	}
	failed := errors.New("failed")
	got, err := parseEnviron(io.MultiReader(strings.NewReader("A=1\x00"), iotest.ErrReader(failed)), []string{"A", "B"})
	assert.Check(t, errors.Is(err, failed) && got == nil, "%v, %v", got, err)
}

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte("A=1\x00B=2\x00A=3\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, err := parseEnviron(bytes.NewReader(text), []string{"A", "B"})
		assert.NilError(t, err)
		for name, value := range values {
			assert.Check(t, !strings.Contains(value, "\x00") && strings.Contains(string(text), name+"="+value+"\x00"),
				"%s=%q", name, value)
		}
	})
}

func TestEnvironment(t *testing.T) {
	sleep := testenv.NeedTool(t, "sleep")
	cmd := exec.Command(sleep, "infinity")
	cmd.Env = []string{"OTHER=" + strings.Repeat("o", 100_000), "A=one\nline \xff", "EMPTY="}
	p := child.Start(t, cmd)
	h := openPID(t, p.PID)
	want := map[string]string{"A": "one\nline \xff", "EMPTY": ""}
	testenv.Poll(t, child.Timeout, "the program", func() bool { // it may not have been executed yet
		got, err := h.Environment("A", "EMPTY", "UNSET")
		return err == nil && reflect.DeepEqual(got, want)
	})
	p.Kill()
	got, err := h.Environment("A")
	assert.Check(t, errors.Is(err, ErrGone) && got == nil, "after the exit: %q, %v", got, err)

	// As in a Kubernetes namespace with a thousand services.
	far := exec.Command(sleep, "infinity")
	for i := range 10 {
		far.Env = append(far.Env, fmt.Sprintf("SERVICE_%d=%s", i, strings.Repeat("o", 100_000)))
	}
	far.Env = append(far.Env, "A=far")
	h = openPID(t, child.Start(t, far).PID)
	testenv.Poll(t, child.Timeout, "the program", func() bool {
		got, err := h.Environment("A", "UNSET")
		return err == nil && reflect.DeepEqual(got, map[string]string{"A": "far"})
	})
}

// A kernel thread has no environment.
func TestEnvironmentOfKernelThread(t *testing.T) {
	got, err := openPID(t, child.KernelThread(t)).Environment("A")
	assert.Check(t, err != nil || len(got) == 0, "%q, %v", got, err)
}
