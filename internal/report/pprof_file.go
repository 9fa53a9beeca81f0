package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"
)

// errNotOurs: the existing file is neither regular nor owned by us or root.
var errNotOurs = errors.New("neither a regular file nor something of our own")

// checkFile checks, without writing, that WriteFile can write a file.
func checkFile(path string) error {
	inPlace, err := openInPlace(path)
	if err == nil && inPlace != nil {
		err = unix.Access(descriptorPath(inPlace), unix.W_OK)
		inPlace.Close()
	} else if err == nil {
		err = unix.Access(filepath.Dir(path), unix.W_OK)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// writeFile writes a profile, compressed, and returns its size. The file is replaced atomically,
// and readable by its owner alone: it discloses what a host runs. What is not a regular file (a
// FIFO, a device) is written to in place, if it belongs to root or to us: in a directory that all
// users can write, one may have been put there to get the profile.
func writeFile(path string, p *pprof.Profile) (lenBytes int, err error) {
	var content bytes.Buffer
	if err := p.Write(&content); err != nil {
		return 0, fmt.Errorf("encoding profile: %w", err)
	}
	inPlace, err := openInPlace(path)
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", path, err)
	}
	if inPlace == nil {
		return content.Len(), replace(path, content.Bytes())
	}
	defer inPlace.Close()
	return content.Len(), writeTo(descriptorPath(inPlace), content.Bytes())
}

// openInPlace opens, with O_PATH, what is written to in place. It returns nil when a file is to be
// created. A symbolic link at the end of the path is followed if it is root's or ours, too.
func openInPlace(path string) (*os.File, error) {
	file, stat, err := openOurs(path, unix.O_NOFOLLOW)
	if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		file.Close()
		file, stat, err = openOurs(path, 0)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = unix.EISDIR
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return file, nil
	}
	file.Close()
	return nil, err
}

// openOurs also opens regular files of others: they are replaced, not written to.
func openOurs(path string, flags int) (*os.File, unix.Stat_t, error) {
	var stat unix.Stat_t
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, stat, err
	}
	file := os.NewFile(uintptr(fd), path)
	if err = unix.Fstat(fd, &stat); err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG && stat.Uid != 0 &&
		int(stat.Uid) != os.Geteuid() {
		err = fmt.Errorf("%w: it belongs to user %d (-o - writes to standard output)", errNotOurs, stat.Uid)
	}
	if err != nil {
		file.Close()
	}
	return file, stat, err
}

func descriptorPath(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

func writeTo(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// replace writes a temporary file in the same directory and renames it. os.CreateTemp sets the
// mode.
func replace(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}
