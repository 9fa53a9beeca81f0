package procdir

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"
)

// A process is listed, and its fields are found whatever it calls itself.
func TestFields(t *testing.T) {
	dir := t.TempDir()
	process := filepath.Join(dir, "17")
	assert.NilError(t, os.Mkdir(process, 0o700))
	for name, text := range map[string]string{
		"stat":   "17 (a) 5 (R) b) S 1 2 3 4 5 2097152 7\n",
		"status": "Name:\tVmData: 5\nNSpid:\t17\t3\nNSpidX:\t5\nVmData:\t  4660 kB\n",
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(process, name), []byte(text), 0o600))
	}
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "self"), 0o700))
	ids, err := IDs(dir)
	assert.Check(t, err == nil && slices.Equal(ids, []int{17}), "%v, %v", ids, err)
	for field, want := range map[int]string{3: "S", 9: "2097152", 10: "7"} {
		got, err := Stat(process, field)
		assert.Check(t, err == nil && got == want, "field %d: %q, %v", field, got, err)
	}
	for field, want := range map[string]string{"VmData": "[4660 kB]", "NSpid": "[17 3]"} {
		got, err := Status(process, field)
		assert.Check(t, err == nil && fmt.Sprint(got) == want, "%s: %q, %v", field, got, err)
	}
	for _, field := range []int{2, 11} {
		_, err = Stat(process, field)
		assert.ErrorIs(t, err, errNoField)
	}
	_, err = Status(process, "VmRSS")
	assert.ErrorIs(t, err, errNoField)
}

// What is not there, or is no directory, is an error.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	assert.NilError(t, os.WriteFile(file, nil, 0o600))
	assert.NilError(t, Check(dir))
	assert.ErrorIs(t, Check(file), errNoDirectory)
	missing := filepath.Join(dir, "missing")
	_, idsErr := IDs(missing)
	_, statErr := Stat(missing, 3)
	_, statusErr := Status(missing, "NSpid")
	for _, err := range []error{Check(missing), idsErr, statErr, statusErr} {
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

// It is seen that a process has begun, but not by a file that is not the kernel's.
func TestNewest(t *testing.T) {
	before := Newest("/proc")
	assert.NilError(t, exec.Command("true").Run())
	assert.Check(t, before != "" && Newest("/proc") != before, "%q", before)
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "loadavg"), []byte("0.1 0.2 0.3 1/2 3\n"), 0o600))
	assert.Check(t, Newest(dir) == "" && Newest(filepath.Join(dir, "missing")) == "")
}

// What the kernel shows of ourselves is found.
func TestSelf(t *testing.T) {
	state, err := Stat("/proc/thread-self", 3)
	assert.Check(t, err == nil && state == "R", "%q, %v", state, err)
	pids, err := Status("/proc/self", "NSpid")
	assert.Check(t, err == nil && pids[len(pids)-1] == strconv.Itoa(os.Getpid()), "%v, %v", pids, err)
	threads, err := IDs("/proc/self/task")
	assert.Check(t, err == nil && slices.Contains(threads, os.Getpid()), "%v, %v", threads, err)
}
