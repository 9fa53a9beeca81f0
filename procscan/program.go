package procscan

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxThreadName is TASK_COMM_LEN, whose final NUL is not shown, and a newline.
const maxThreadName = 16 + 1

// Executable returns the path of the program that the process runs, as the process sees it. It is
// for display only and identifies nothing. A program without a file (a kernel thread, memfd) has
// none, or a name that is not a path.
func (h *Handle) Executable() (string, error) {
	path, err := os.Readlink(h.path("exe"))
	if !h.Alive() {
		return "", ErrGone
	}
	if err != nil {
		// A missing file does not mean that the process has exited.
		return "", fmt.Errorf("reading the process's executable: %w", classifyDenied(err))
	}
	return strings.TrimSuffix(path, " (deleted)"), nil
}

// ThreadNumber returns the number of a thread of the process in its own pid namespace. ErrGone: the
// thread, or the process, has exited.
func (h *Handle) ThreadNumber(tid int) (int, error) {
	fd, err := h.open(fmt.Sprintf("task/%d/status", tid), unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	file := os.NewFile(uintptr(fd), "status")
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxStatusBytes))
	if err != nil {
		return 0, fmt.Errorf("reading the status of thread %d: %w", tid, classify(err))
	}
	return parseThreadNumber(text)
}

// parseThreadNumber parses a line of /proc/PID/task/TID/status: the thread's numbers, from our pid
// namespace to its own.
//
//	NSpid:	4711	7
func parseThreadNumber(status []byte) (int, error) {
	for line := range bytes.Lines(status) {
		if numbers, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			fields := bytes.Fields(numbers)
			if len(fields) == 0 {
				break
			}
			return strconv.Atoi(string(fields[len(fields)-1]))
		}
	}
	return 0, fmt.Errorf("finding NSpid: %w", errStatus)
}

// ThreadName returns the name of a thread of the process: at most 15 bytes, any but zero. ErrGone:
// the thread, or the process, has exited.
func (h *Handle) ThreadName(tid int) (string, error) {
	fd, err := h.open(fmt.Sprintf("task/%d/comm", tid), unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	file := os.NewFile(uintptr(fd), "comm")
	defer file.Close()
	name, err := io.ReadAll(io.LimitReader(file, maxThreadName))
	if err != nil {
		return "", fmt.Errorf("reading the name of thread %d: %w", tid, classify(err))
	}
	return strings.TrimSuffix(string(name), "\n"), nil
}
