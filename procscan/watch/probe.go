package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// EventMemoryBytes returns how much memory an EventWatcher locks for each CPU.
func EventMemoryBytes() int {
	page := os.Getpagesize()
	return page + max(page, ringBytes) + 2*page // the ring's, the waker's
}

// probeTimeout is far more than the latency of a record, some 2 ms.
const probeTimeout = 2 * time.Second

// ProbeEvents opens an EventWatcher for a moment, maps a page of our own program, and checks that
// the kernel reports it. The errors are those of OpenEventWatcher.
func ProbeEvents(procRoot string) error {
	w, err := OpenEventWatcher()
	if err != nil {
		return err
	}
	reported, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- w.Run(func(e Event) {
			if e.Kind > EventLibrary || e.PID != os.Getpid() {
				return
			}
			select {
			case reported <- struct{}{}:
			default:
			}
		})
	}()
	if err = mapOwnProgram(procRoot); err == nil {
		select {
		case <-reported:
		case <-time.After(probeTimeout):
			err = fmt.Errorf("no record of a mapping in %v", probeTimeout)
		}
	}
	return errors.Join(err, w.Close(), <-ended)
}

// mapOwnProgram maps a page of our program as code, and unmaps it.
func mapOwnProgram(procRoot string) error {
	program, err := os.Open(filepath.Join(procRoot, "self", "exe"))
	if err != nil {
		return fmt.Errorf("opening our own program: %w", err)
	}
	defer program.Close()
	page, err := unix.Mmap(int(program.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mapping our own program: %w", err)
	}
	return unix.Munmap(page)
}
