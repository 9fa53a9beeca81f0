package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// emulatorSuite is the release of Debian whose QEMU boots the guests, whichever the host runs. That of
// bookworm (7.2) corrupts registers with cmpxchg16b, which crashes Linux 6.12 and later on x86-64; and with
// multi-threaded TCG it may execute code as it was before the kernel has patched it, which is a panic (int3).
const emulatorSuite = "trixie"

// emulatorPackages are those of QEMU for all machines.
var emulatorPackages = []string{"qemu-system-arm", "qemu-system-x86"}

// An emulator is QEMU as unpacked in a directory, with its libraries and the firmware of its machines.
type emulator string

// fetchEmulator returns QEMU for this host, from a directory that is named after what is in it.
func fetchEmulator(dir string) (emulator, error) {
	contents := sha256.Sum256(fmt.Append(nil, emulatorSuite, emulatorPackages))
	root := filepath.Join(dir, fmt.Sprintf("qemu-%s-%x", runtime.GOARCH, contents[:4]))
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

// command returns the command of a program of QEMU, by the dynamic linker that was unpacked with it, which
// looks for libraries beside itself first.
func (e emulator) command(program string) ([]string, error) {
	linkers, err := filepath.Glob(filepath.Join(string(e), "usr/lib/*/ld-linux-*.so.*"))
	if err != nil {
		return nil, err
	}
	if len(linkers) != 1 {
		return nil, fmt.Errorf("%s has %d dynamic linkers, not one", e, len(linkers))
	}
	command := []string{linkers[0], "--inhibit-cache", "--library-path", filepath.Dir(linkers[0]),
		filepath.Join(string(e), "usr/bin", program)}
	for _, firmware := range []string{"usr/share/qemu", "usr/share/seabios"} {
		command = append(command, "-L", filepath.Join(string(e), firmware))
	}
	return command, nil
}
