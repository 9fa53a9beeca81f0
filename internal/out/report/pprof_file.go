package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"correlator/internal/host/safedir"
)

var (
	// errNotOurs: the existing file is neither regular nor owned by us or root.
	errNotOurs = errors.New("neither a regular file nor something of our own")
	// errLink: the path ends at a symbolic link to a regular file, or to none.
	errLink = errors.New("it is a symbolic link: name the file itself")
)

// output is where a profile is written. It may be in a directory of somebody else, as that of the
// user who calls sudo: the directory is opened once, by way of links that nobody else can exchange
// only, and everything is done in it.
type output struct {
	dir     *os.File // O_PATH
	name    string
	inPlace *os.File // O_PATH; nil: a file of that name is created or replaced
}

func openOutput(path string) (*output, error) {
	dir, name := filepath.Split(path)
	if name == "" {
		name = "." // an error, since it is a directory
	}
	if dir == "" {
		dir = "."
	}
	o := &output{name: name}
	var err error
	if o.dir, _, err = safedir.Follow(dir); err != nil {
		return nil, err
	}
	if o.inPlace, err = o.openInPlace(path); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (o *output) Close() {
	o.dir.Close()
	if o.inPlace != nil {
		o.inPlace.Close()
	}
}

// CheckFile checks, without writing, that WriteFile can write a file.
func CheckFile(path string) error {
	o, err := openOutput(path)
	if err == nil {
		defer o.Close()
		writable := o.dir
		if o.inPlace != nil {
			writable = o.inPlace
		}
		err = unix.Access(descriptorPath(writable), unix.W_OK)
	}
	return writing(path, err)
}

// writing adds the path to an error, instead of one by descriptor.
func writing(path string, err error) error {
	var of *os.PathError
	var renaming *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &of):
		err = of.Err
	case errors.As(err, &renaming):
		err = renaming.Err
	}
	return fmt.Errorf("writing %s: %w", path, err)
}

// WriteFile writes a profile. The file is replaced atomically,
// and readable by its owner alone: it discloses what a host runs. What is not a regular file (a
// FIFO, a device) is written to in place, if it belongs to root or to us: in a directory that all
// users can write, one may have been put there to get the profile. So is whatever a process has open
// and a link of procfs leads to, as /dev/stdout does.
func WriteFile(path string, content []byte) error {
	o, err := openOutput(path)
	if err == nil {
		defer o.Close()
		if o.inPlace != nil {
			err = writeTo(descriptorPath(o.inPlace), content)
		} else {
			err = o.replace(content)
		}
	}
	return writing(path, err)
}

// openInPlace opens, with O_PATH, what is written to in place. It returns nil when a regular file is
// to be created or replaced. A symbolic link at the end of the path is followed if it is root's or
// ours, but never replaced.
func (o *output) openInPlace(path string) (*os.File, error) {
	fd, err := unix.Openat(int(o.dir.Fd()), o.name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	format, err := checkOurs(file)
	isLink, byMagic := format == unix.S_IFLNK, false
	if err == nil && isLink {
		file.Close()
		if file, byMagic, err = safedir.Follow(path); errors.Is(err, unix.ENOENT) {
			return nil, errLink
		} else if err != nil {
			return nil, err
		}
		format, err = checkOurs(file)
	}
	switch {
	case err != nil:
	case format == unix.S_IFDIR:
		err = unix.EISDIR
	case format != unix.S_IFREG || byMagic:
		return file, nil
	case isLink:
		err = errLink
	}
	file.Close()
	return nil, err
}

// checkOurs returns the format of an open file. Regular files may be others': they are replaced, or
// we have them open.
func checkOurs(file *os.File) (format uint32, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return 0, err
	}
	format = stat.Mode & unix.S_IFMT
	if format != unix.S_IFREG && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		err = fmt.Errorf("%w: it belongs to user %d (-o - writes to standard output)", errNotOurs, stat.Uid)
	}
	return format, err
}

func descriptorPath(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

func writeTo(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// replace writes a temporary file in the directory and renames it. os.CreateTemp sets the mode.
func (o *output) replace(content []byte) error {
	file, err := os.CreateTemp(descriptorPath(o.dir), "."+o.name+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(descriptorPath(o.dir), o.name))
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}
