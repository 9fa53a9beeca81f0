package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// peerModule is the peer's, in the version that our engine is of.
const peerModule = "go.opentelemetry.io/ebpf-profiler"

// buildPeer builds the peer in a directory, from its patched source.
func buildPeer(dir string) (binary string, err error) {
	source := filepath.Join(dir, "source")
	if err := copyPeer(source, "testdata/peer/memlock.patch"); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "peer")
	return binary, runIn(source, "go", "build", "-trimpath", "-o", binary, ".")
}

func copyPeer(source, patch string) error {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", peerModule).Output()
	if err != nil {
		return fmt.Errorf("looking for the peer's module: %w", err)
	}
	patch, err = filepath.Abs(patch)
	if err != nil {
		return err
	}
	if err := os.CopyFS(source, os.DirFS(strings.TrimSpace(string(module)))); err != nil {
		return err
	}
	return runIn(source, "git", "apply", patch)
}

func runIn(dir string, argv ...string) error {
	command := exec.Command(argv[0], argv[1:]...)
	command.Dir, command.Stderr = dir, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("building the peer: %v: %w", argv, err)
	}
	return nil
}

// withTracefs executes a program where tracefs is mounted.
const withTracefs = `mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"`

// peer returns how the peer is started: in a mount namespace of its own, for tracefs, and with reports that come as
// often in one round as in another.
func peer(binary string) func(load, int, string) *exec.Cmd {
	return func(_ load, hz int, endpoint string) *exec.Cmd {
		command := exec.Command("sh", "-c", withTracefs, "sh", binary, "-collection-agent", endpoint, "-disable-tls",
			"-reporter-jitter", "0", "-samples-per-second", strconv.Itoa(hz))
		command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // also makes the mounts private
		return command
	}
}
