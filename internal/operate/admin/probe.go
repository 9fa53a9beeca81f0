package admin

import (
	"errors"
	"os"
	"path/filepath"

	"correlator/internal/host/safedir"
	"correlator/internal/host/sockfile"
)

// Probe returns the error that Open would return, without creating or removing anything.
func Probe(path string) error {
	err := sockfile.Probe("unix", path)
	dir := filepath.Dir(path)
	if _, statErr := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || !errors.Is(statErr, os.ErrNotExist) {
		return err
	}
	above, openErr := safedir.Open(filepath.Dir(dir)) // where Open would create the directory
	if openErr != nil {
		return openErr
	}
	defer above.Close()
	return above.CheckWritable()
}
