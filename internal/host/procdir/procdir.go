// Package procdir reads the few facts of a procfs that workers need, too. A library for all of procfs brings
// what takes longer to initialize than a worker takes to start (see worker.Early).
package procdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Check returns an error if there is no directory at procRoot.
func Check(procRoot string) error {
	info, err := os.Stat(procRoot)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "stat", Path: procRoot, Err: errNoDirectory}
	}
	return err
}

var errNoDirectory = errors.New("not a directory")

// IDs returns the numbers in a directory: the processes of a proc root, or the threads of a task directory.
func IDs(dir string) (ids []int, err error) {
	opened, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	names, err := opened.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	ids = make([]int, 0, len(names))
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// maxThreadsTried bounds how many threads LivingThread looks at: all but the first are gone from the
// directory as soon as they have ended.
const maxThreadsTried = 16

// LivingThread returns the id by which the memory, the files and the paths of a process are found in
// procRoot: its own, or that of another thread where the first one has ended (pthread_exit in main).
// Of a process that has ended, and of what is none, it is the given one. It is valid for this moment:
// the id may be that of another process when the thread has ended.
func LivingThread(procRoot string, pid int) int {
	dir := path.Join(procRoot, strconv.Itoa(pid))
	lives := func(dir string) bool {
		_, err := os.Readlink(path.Join(dir, "exe")) // a thread that has ended, or one of the kernel, has none
		return !errors.Is(err, fs.ErrNotExist)
	}
	if lives(dir) {
		return pid
	}
	tids, err := IDs(path.Join(dir, "task"))
	if err != nil {
		return pid
	}
	for _, tid := range tids[:min(len(tids), maxThreadsTried)] {
		if tid != pid && lives(path.Join(dir, "task", strconv.Itoa(tid))) {
			return tid
		}
	}
	return pid
}

// Dir returns the directory of what the threads of a process share, by a thread that lives: that of the
// process, or of one of its threads. All that a process has in procfs is in both, but map_files.
func Dir(procRoot string, pid int) string {
	dir := path.Join(procRoot, strconv.Itoa(pid))
	if tid := LivingThread(procRoot, pid); tid != pid {
		return path.Join(dir, "task", strconv.Itoa(tid))
	}
	return dir
}

// Newest returns what changes whenever a process or thread begins in our pid namespace, but for one of millions: the
// last field of loadavg (fs/proc/loadavg.c). It is "" if that is not known, as where the file is not the kernel's:
// lxcfs mounts one over it.
func Newest(procRoot string) string {
	var system unix.Statfs_t
	file := path.Join(procRoot, "loadavg")
	if unix.Statfs(file, &system) != nil || system.Type != unix.PROC_SUPER_MAGIC {
		return ""
	}
	text, _ := os.ReadFile(file)
	return string(text[bytes.LastIndexByte(text, ' ')+1:])
}

// HasThread reports whether a process has a thread. What was read by the id of the thread alone, just
// before, is of that thread then: ids are not given out again so soon.
func HasThread(procRoot string, pid, tid int) bool {
	_, err := os.Lstat(path.Join(procRoot, strconv.Itoa(pid), "task", strconv.Itoa(tid)))
	return err == nil
}

// Status returns the values of a field of a process's status; its directory may be that of self.
func Status(dir, field string) ([]string, error) {
	text, err := os.ReadFile(path.Join(dir, "status"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if values, found := strings.CutPrefix(line, field+":"); found {
			return strings.Fields(values), nil
		}
	}
	return nil, fmt.Errorf("%w: %s", errNoField, field)
}

// Stat returns a field of the stat of a process or thread by its number in proc_pid_stat(5), from 3.
func Stat(dir string, field int) (string, error) {
	text, err := os.ReadFile(path.Join(dir, "stat"))
	if err != nil {
		return "", err
	}
	// Field 2 is a name that a process chooses, in parentheses: it may have others.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const first = 3
	if field < first || field-first >= len(fields) {
		return "", fmt.Errorf("%w: %d", errNoField, field)
	}
	return fields[field-first], nil
}

var errNoField = errors.New("no such field")
