package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
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
