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
	text, err := h.readOfThread(tid, "status", maxStatusBytes)
	if err != nil {
		return 0, err
	}
	return parseThreadNumber(text)
}

// readOfThread reads the beginning of a file of a thread of the process.
func (h *Handle) readOfThread(tid int, name string, limit int64) ([]byte, error) {
	fd, err := h.open(fmt.Sprintf("task/%d/%s", tid, name), unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return nil, fmt.Errorf("reading the %s of thread %d: %w", name, tid, classify(err))
	}
	return text, nil
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
	name, err := h.readOfThread(tid, "comm", maxThreadName)
	return strings.TrimSuffix(string(name), "\n"), err
}
