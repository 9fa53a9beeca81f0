package procscan

import (
	"fmt"
	"os"
	"strings"
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
	text, err := h.read(fmt.Sprintf("task/%d/status", tid), maxStatusBytes)
	if err != nil {
		return 0, err
	}
	return parseThreadNumber(text)
}

// parseThreadNumber returns the last of a thread's numbers, that in its own namespace.
func parseThreadNumber(status []byte) (int, error) {
	pids, err := parsePIDs(status)
	if err != nil {
		return 0, err
	}
	return pids[len(pids)-1], nil
}

// ThreadName returns the name of a thread of the process: at most 15 bytes, any but zero. ErrGone:
// the thread, or the process, has exited.
func (h *Handle) ThreadName(tid int) (string, error) {
	name, err := h.read(fmt.Sprintf("task/%d/comm", tid), maxThreadName)
	return strings.TrimSuffix(string(name), "\n"), err
}
