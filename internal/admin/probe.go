package admin

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"correlator/internal/sockfile"
)

// Probe says whether Open would get the path, without making or removing anything. The errors are those of
// Open.
func Probe(path string) error {
	err := sockfile.Probe("unix", path)
	dir := filepath.Dir(path)
	if _, statErr := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || !errors.Is(statErr, os.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir) + "/" // where Open would make the directory
	if err := unix.Faccessat(unix.AT_FDCWD, above, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "making a directory in", Path: above, Err: err}
	}
	return nil
}
