package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// memory is that of the guest in MiB: of the unpacked initramfs, which is some 400 MiB, and for the
// tests.
const memory = "4096"

// kernelParameters are those of all kernels.
var kernelParameters = []string{
	"rdinit=/init",
	// An oops is a panic, after which the machine restarts at once, which ends QEMU.
	"oops=panic", "panic=-1",
	// The log, which is read after the tests, has room for 128 KiB by default.
	"log_buf_len=4M",
	// khugepaged has the lowest priority: on an emulated CPU, beside busy threads, it may need 20 s for one huge
	// page, in a read-side critical section of RCU, and all that waits for a grace period waits for it.
	"transparent_hugepage=madvise",
	// Isolation of the page tables empties the TLB of TCG, which is tagged by neither PCID nor ASID, at each system
	// call: what reads other processes then takes twice the CPU time. Retpolines and other mitigations add to that.
	"mitigations=off",
}

// boot runs a kernel with an initramfs until it turns the machine off, and hands over its events.
// All that it prints goes to log; cpus are QEMU's options for these.
func boot(ctx context.Context, qemu emulator, k kernel, cpus []string, image, initramfs string, log io.Writer,
	handle func(event)) error {
	m := machines[k.arch]
	command, err := qemu.command(m.program)
	if err != nil {
		return err
	}
	command = append(slices.Concat(command, m.options, monitorOptions, cpus), "-m", memory, "-nodefaults",
		"-nographic", "-serial", "stdio", "-no-reboot", "-kernel", image, "-initrd", initramfs,
		"-append", strings.Join(append(slices.Clone(m.kernel), kernelParameters...), " "))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	monitor, theirs, err := newMonitor()
	if err != nil {
		return err
	}
	defer monitor.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("starting %s: %w", m.program, err)
	}
	var stopping error
	done, malformed, reading := readEvents(io.TeeReader(stdout, log), func(e event) {
		switch {
		case e.Stall > 0:
			stopping = errors.Join(stopping, stall(ctx, cmd.Process, e.Stall))
		case e.Pause > 0:
			stopping = errors.Join(stopping, monitor.pause(ctx, e.Pause))
		}
		handle(e)
	})
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the guest is not done: %w", context.Cause(ctx))
	case stopping != nil:
		return fmt.Errorf("stopping the machine for a while: %w", stopping)
	case reading != nil:
		return fmt.Errorf("reading the console: %w", reading)
	case err != nil:
		return fmt.Errorf("%s: %w", m.program, err)
	case !done:
		return fmt.Errorf("the guest ended before it was done")
	}
	return malformed // results were lost
}

// progress prints which step has ended, and when.
func progress(k kernel, began time.Time, e event) {
	seconds := time.Since(began).Seconds()
	switch {
	case e.Release != "":
		fmt.Fprintf(os.Stderr, "%-11s %5.0f s  booted %s\n", k.id, seconds, e.Release)
	case e.Ended != nil:
		fmt.Fprintf(os.Stderr, "%-11s %5.0f s  %s took %.0f s %s\n", k.id, seconds, e.Step, e.Ended.Seconds,
			strings.TrimSpace(e.Ended.Error))
	}
}
