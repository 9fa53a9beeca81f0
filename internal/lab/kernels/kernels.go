package main

import (
	"fmt"
	"slices"
	"strings"
)

// A kernel is one that `make kernels` can boot, from a Debian release.
type kernel struct {
	id    string // architecture and version, as KERNELS names it
	arch  string // as Debian and Go call it
	suite string // release of Debian whose newest such kernel is taken
}

var kernels = []kernel{
	{"amd64-5.10", "amd64", "bullseye"},
	{"amd64-6.1", "amd64", "bookworm"},
	{"amd64-6.12", "amd64", "trixie"},
	{"amd64-7.2", "amd64", "sid"},
	{"arm64-6.1", "arm64", "bookworm"},
	{"arm64-6.12", "arm64", "trixie"},
}

// hasVersion reports whether a release, as uname -r prints it, is of the version in a kernel's id.
func hasVersion(id, release string) bool {
	_, version, _ := strings.Cut(id, "-")
	return strings.HasPrefix(release, version+".")
}

// selectKernels returns the kernels with these ids, in the order of the list; all without ids.
func selectKernels(ids []string) ([]kernel, error) {
	if len(ids) == 0 {
		return kernels, nil
	}
	var selected []kernel
	var known []string
	for _, k := range kernels {
		known = append(known, k.id)
		if slices.Contains(ids, k.id) {
			selected = append(selected, k)
		}
	}
	for _, id := range ids {
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("no kernel %q; there are %s", id, strings.Join(known, ", "))
		}
	}
	return selected, nil
}

// machine is what differs between the emulated machines.
type machine struct {
	program string // of QEMU
	options []string
	kernel  []string // its parameters
}

// machines are by architecture. The CPUs:
//
//   - Haswell, without what TCG lacks, of which QEMU would warn.
//   - The Cortex-A72 has no pointer authentication, whose emulation takes most of the time with
//     `-cpu max`.
var machines = map[string]machine{
	"amd64": {
		program: "qemu-system-x86_64", kernel: []string{"console=ttyS0"},
		options: []string{"-machine", "pc", "-cpu",
			"Haswell-v1,-pcid,-tsc-deadline,-hle,-rtm,-invpcid"},
	},
	"arm64": {
		program: "qemu-system-aarch64",
		kernel:  []string{"console=ttyAMA0", "kpti=off"}, // mitigations=off leaves KPTI on where there is KASLR
		options: []string{"-machine", "virt", "-cpu", "cortex-a72"},
	},
}
