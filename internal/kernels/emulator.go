package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// emulatorSuite is the release of Debian whose QEMU boots the guests, whichever the host runs. That of
// bookworm (7.2) corrupts registers with cmpxchg16b, which Linux 6.12 and later crash of on x86-64; and
// with CPUs that are threads it may execute code that the kernel has patched as it was before, which is a
// panic (int3).
const emulatorSuite = "trixie"

// emulatorPackages are those of QEMU for all machines.
var emulatorPackages = []string{"qemu-system-arm", "qemu-system-x86"}

// An emulator is QEMU as unpacked in a directory, with its libraries and the firmware of its machines.
type emulator string

// fetchEmulator returns QEMU for this host.
func fetchEmulator(dir string) (emulator, error) {
	root := filepath.Join(dir, "qemu-"+runtime.GOARCH+"-"+emulatorSuite)
	if _, err := os.Stat(root); err == nil {
		return emulator(root), nil
	}
	a, err := openArchive(dir, runtime.GOARCH, emulatorSuite)
	if err != nil {
		return "", err
	}
	packages, err := a.resolve(emulatorPackages...)
	if err != nil {
		return "", err
	}
	return emulator(root), replaceDir(root, func(dir string) error { return a.unpack(dir, packages...) })
}

// command returns the command of a program of QEMU: its dynamic linker, which finds no other libraries
// than QEMU's.
func (e emulator) command(program string) ([]string, error) {
	linkers, err := filepath.Glob(filepath.Join(string(e), "usr/lib/*/ld-linux-*.so.*"))
	if err != nil {
		return nil, err
	}
	if len(linkers) != 1 {
		return nil, fmt.Errorf("%s has %d dynamic linkers, not one", e, len(linkers))
	}
	command := []string{linkers[0], "--library-path", filepath.Dir(linkers[0]),
		filepath.Join(string(e), "usr/bin", program)}
	for _, firmware := range []string{"usr/share/qemu", "usr/share/seabios"} {
		command = append(command, "-L", filepath.Join(string(e), firmware))
	}
	return command, nil
}
