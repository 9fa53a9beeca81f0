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
