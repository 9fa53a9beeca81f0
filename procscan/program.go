package procscan

import (
	"fmt"
	"io"
	"os"
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
