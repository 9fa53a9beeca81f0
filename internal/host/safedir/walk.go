package safedir

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links the kernel follows in a path.
const maxLinks = 40

// walker is at a file on the way of a path.
type walker struct {
	at    *element
	every bool // all names must be safe; else those of symbolic links only
	links int
}

// walk resolves a path name by name, as the kernel does, and returns its end.
func walk(path string, every bool) (*element, error) {
	w := &walker{every: every}
	err := w.start(path)
	for rest := split(path); err == nil && len(rest) > 0; {
		var target string
		target, err = w.step(rest[0])
		rest = append(split(target), rest[1:]...)
	}
	if err != nil {
		w.moveTo(nil)
	}
	return w.at, err
}

// start moves to where a path begins.
func (w *walker) start(path string) error {
	name := "."
	if filepath.IsAbs(path) {
		name = "/"
	}
	e, err := open(unix.AT_FDCWD, name, name, 0)
	if err == nil {
		w.moveTo(e)
	}
	return err
}

func (w *walker) moveTo(e *element) {
	if w.at != nil {
		w.at.file.Close()
	}
	w.at = e
}

// step moves to a name in the directory where it is, or, if that is a symbolic link, to where the
// path begins that it returns.
func (w *walker) step(name string) (target string, err error) {
	if w.every {
		if err := w.at.isSafe(nil); err != nil { // before anything is looked up there
			return "", err
		}
	}
	dir, path := int(w.at.file.Fd()), filepath.Join(w.at.path, name)
	next, err := open(dir, name, path, unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	isLink := next.stat.Mode&unix.S_IFMT == unix.S_IFLNK
	if (w.every || isLink) && name != ".." {
		err = w.at.isSafe(next)
		if err != nil && !w.every {
			err = w.at.exchangeable(next)
		}
	}
	if err != nil || !isLink {
		return "", w.arrive(next, err)
	}
	defer next.file.Close()
	if w.links++; w.links > maxLinks {
		return "", &os.PathError{Op: "opening", Path: path, Err: unix.ELOOP}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(dir, &fs); err != nil {
		return "", &os.PathError{Op: "statfs", Path: w.at.path, Err: err}
	}
	if fs.Type == unix.PROC_SUPER_MAGIC { // the text of a magic link is not where it leads
		end, err := open(dir, name, path, 0)
		if err == nil {
			end.byMagic = true
		}
		return "", w.arrive(end, err)
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(next.file.Fd()), "", text)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	target = string(text[:n])
	if filepath.IsAbs(target) {
		err = w.start(target)
	}
	return target, err
}

// arrive moves to an element unless there was an error.
func (w *walker) arrive(next *element, err error) error {
	switch {
	case err == nil:
		w.moveTo(next)
	case next != nil:
		next.file.Close()
	}
	return err
}

// open opens what an element's path leads to, with O_PATH.
func open(dir int, name, path string, flags int) (*element, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "opening", Path: path, Err: err}
	}
	e := &element{path: path, file: os.NewFile(uintptr(fd), path)}
	if err := unix.Fstat(fd, &e.stat); err != nil {
		e.file.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return e, nil
}

// split returns the names of a path.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
