package sockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Probe says whether Bind would get the path, without making or removing anything. The errors are those
// of Bind. The lock is taken for a moment if its file is there.
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
	dir := filepath.Dir(path) + "/" // and nothing but a directory
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
