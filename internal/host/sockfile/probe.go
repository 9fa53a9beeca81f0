package sockfile

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"correlator/internal/host/safedir"
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
	dir, err := safedir.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.CheckWritable(); err != nil {
		return err
	}
	lock, err := openLock(dir, filepath.Base(path), 0)
	switch {
	case err == nil:
		defer lock.Close()
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	_, err = isStale(network, dir, filepath.Base(path))
	return err
}
