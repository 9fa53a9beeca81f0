package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A monitor is a QMP connection to QEMU: lines of JSON, interop/qmp-spec of its documentation.
type monitor struct {
	io.ReadWriteCloser
	replies    *json.Decoder
	negotiated bool
}

// monitorFD is the other end of a monitor in QEMU, the first of exec.Cmd.ExtraFiles.
const monitorFD = 3

// monitorOptions are those of QEMU for a monitor at monitorFD.
var monitorOptions = []string{"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitorFD),
	"-mon", "chardev=monitor,mode=control"}

func newMonitor() (m *monitor, theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a connection for the monitor: %w", err)
	}
	ours := os.NewFile(uintptr(ends[0]), "monitor")
	m = &monitor{ReadWriteCloser: ours, replies: json.NewDecoder(ours)}
	return m, os.NewFile(uintptr(ends[1]), "monitor"), nil
}

// execute executes a command without arguments, and returns when QEMU has answered.
func (m *monitor) execute(command string) error {
	if err := json.NewEncoder(m).Encode(map[string]string{"execute": command}); err != nil {
		return fmt.Errorf("%s: writing to the monitor: %w", command, err)
	}
	for { // the greeting and events come between
		var reply struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := m.replies.Decode(&reply); err != nil {
			return fmt.Errorf("%s: reading from the monitor: %w", command, err)
		}
		switch {
		case reply.Error != nil:
			return fmt.Errorf("%s: %s", command, reply.Error.Desc)
		case reply.Return != nil:
			return nil
		}
	}
}

// pause stops the machine for a while, and its clocks with it, but the one of the board.
func (m *monitor) pause(ctx context.Context, length time.Duration) error {
	if !m.negotiated {
		if err := m.execute("qmp_capabilities"); err != nil {
			return err
		}
		m.negotiated = true
	}
	if err := m.execute("stop"); err != nil {
		return err
	}
	wait(ctx, length)
	return m.execute("cont")
}

// stall stops QEMU for a while, as a busy host may stop the CPUs of a virtual machine: clocks go on.
func stall(ctx context.Context, qemu *os.Process, length time.Duration) error {
	err := qemu.Signal(unix.SIGSTOP)
	if err == nil {
		wait(ctx, length)
		err = qemu.Signal(unix.SIGCONT)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil // which is reported as such
	}
	return err
}

func wait(ctx context.Context, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	<-ctx.Done()
}
