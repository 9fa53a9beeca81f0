package sockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Probe returns the error that Bind would return, without creating or removing anything. If the
// lock's file exists it is locked for a moment.
func Probe(network, path string) error {
	path, err := filepath.Abs(path)
	if err == nil {
		err = probe(network, path)
	}
	if err != nil {
		return fmt.Errorf("binding %s: %w", path, err)
	}
	return nil
}

func probe(network, path string) error {
	if len(path) > maxPathBytes {
		return fmt.Errorf("a socket's path has at most %d bytes: %w", maxPathBytes, unix.ENAMETOOLONG)
	}
	dir := filepath.Dir(path) + "/" // the slash: it must be a directory
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "writing to", Path: dir, Err: err}
	}
	lock, err := openLock(path, 0)
	switch {
	case err == nil:
		defer lock.Close()
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	_, err = isStale(network, path)
	return err
}
