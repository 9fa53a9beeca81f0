package access

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// A file that changes while it is read has the id of neither state.
func TestFileChangedWhileRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "library.so")
	contents := testenv.ReadFile(t, "../../../testdata/lib/prebuilt/x86_64-glibc-tlsdesc.so")
	testenv.WriteFile(t, path, contents)
	file, err := os.Open(path)
	assert.NilError(t, err)
	defer file.Close()
	change := readerAt(func(b []byte, off int64) (int, error) {
		assert.Check(t, os.Truncate(path, int64(len(contents))+1))
		return file.ReadAt(b, off)
	})
	found, err := parse(file, change)
	assert.Check(t, errors.Is(err, errChanged), "%+v, %v", found, err)
	if found, err := parse(file, file); err != nil || found.File == nil || found.Key == (elfsym.FileKey{}) {
		t.Errorf("%+v, %v when it is at rest", found, err)
	}
}

type readerAt func(b []byte, off int64) (int, error)

func (r readerAt) ReadAt(b []byte, off int64) (int, error) { return r(b, off) }

// A file that a worker has parsed is known again as long as it has not changed.
func TestParsedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	testenv.WriteFile(t, path, testenv.ReadFile(t, "/bin/cat"))
	assert.NilError(t, os.Chmod(path, 0o700))
	cmd := exec.Command(path)
	testenv.Start(t, cmd)
	s := &server{parsed: make(map[elfsym.FileKey]*elfsym.File)}
	var handle *procscan.Handle
	var mapping procscan.Mapping
	testenv.Poll(t, time.Minute, "the program to be mapped", func() bool {
		var err error
		handle, err = procscan.OpenPID("/proc", cmd.Process.Pid)
		assert.NilError(t, err)
		mappings, err := handle.ExecutableMappings()
		assert.NilError(t, err)
		i := slices.IndexFunc(mappings, func(m procscan.Mapping) bool { return m.Path == path })
		if i < 0 {
			handle.Close()
			return false
		}
		mapping = mappings[i]
		return true
	})
	defer handle.Close()
	first := s.parseFile(handle, mapping)
	assert.Assert(t, first.File != nil && s.parsed[first.Key] == first.File, "%+v", first)
	assert.Check(t, s.parseFile(handle, mapping) == first, "it is parsed again")
	assert.NilError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	changed := s.parseFile(handle, mapping)
	assert.Check(t, changed.File != nil && changed.File != first.File && changed.Key != first.Key, "%+v", changed)
	for i := range int64(maxParsed + 1) {
		assert.NilError(t, os.Chtimes(path, time.Time{}, time.Unix(2+i, 0)))
		s.parseFile(handle, mapping)
	}
	assert.Check(t, len(s.parsed) <= maxParsed, "%d are kept", len(s.parsed))
}
