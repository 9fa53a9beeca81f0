package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// gnuMachine is the machine's name in the names of its tools and directories.
var gnuMachine = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// makePrograms builds the programs of testdata for the guest, against the guest's C libraries, and
// returns their directory. In the guest, make finds them up to date: there, each takes 10 s, and
// there is no clang for those of eBPF, nor a javac.
func (o *options) makePrograms(arch, userland string) (string, error) {
	programs := filepath.Join(o.dir, "programs-for-"+filepath.Base(userland))
	machine := gnuMachine[arch]
	compiler := machine + "-linux-gnu-gcc --sysroot=" + userland
	musl := filepath.Join(userland, "usr/lib", machine+"-linux-musl")
	specs, err := muslSpecs(o.dir, arch, userland, musl)
	if err != nil {
		return "", err
	}
	muslCompiler := compiler + " -specs=" + specs
	if arch == "arm64" {
		muslCompiler += " -mno-outline-atomics" // their part in libgcc needs a function of glibc's
	}
	for kind, compiler := range map[string]string{
		"glibc": compiler, "musl": muslCompiler, "jvm": compiler, "bpf": "",
	} {
		_, err := output(filepath.Join(o.checkout, "testdata"), "make", "--silent", "O="+programs, "MACHINE="+machine,
			"COMPILER="+compiler, "MUSL_LIB="+musl, "programs-"+kind)
		if err != nil {
			return "", fmt.Errorf("building programs-%s for %s: %w", kind, arch, err)
		}
	}
	goLabels := exec.Command("go", "build", "-C", filepath.Join(o.checkout, "testdata/golabels"), "-o",
		filepath.Join(programs, "golabels"), ".")
	goLabels.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch, "GOWORK=off",
		"GOFLAGS=-trimpath -buildvcs=false")
	if text, err := goLabels.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building golabels for %s: %w: %s", arch, err, text)
	}
	return programs, nil
}

// muslSpecs writes what the guest's musl-gcc tells the compiler, with the directories as they are
// named here. The path of the loader, in /lib, is for the guest.
func muslSpecs(dir, arch, userland, musl string) (string, error) {
	specs, err := os.ReadFile(filepath.Join(musl, "musl-gcc.specs"))
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "musl-gcc-"+arch+".specs")
	return file, os.WriteFile(file, []byte(strings.ReplaceAll(string(specs), "/usr/", userland+"/usr/")), 0o644)
}
