package admin

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"correlator/internal/sockfile"
)

// Probe returns the error that Open would return, without creating or removing anything.
func Probe(path string) error {
	err := sockfile.Probe("unix", path)
	dir := filepath.Dir(path)
	if _, statErr := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || !errors.Is(statErr, os.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir) + "/" // where Open would create the directory
	if err := unix.Faccessat(unix.AT_FDCWD, above, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "creating a directory in", Path: above, Err: err}
	}
	return nil
}
