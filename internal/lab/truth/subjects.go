package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// subject is a program of known truth, of one version of a runtime or compiled in one way.
type subject struct {
	name  string // "Go 1.26"
	build func(dir string) (command []string, err error)
	// pointers: it keeps frame pointers, so that it is also looked at without the engine.
	pointers bool
}

// notRunError is why a subject cannot be run on this machine.
type notRunError struct{ reason string }

func (e notRunError) Error() string { return "not run: " + e.reason }

// goVersions are the versions of Go whose toolchains are downloaded.
var goVersions = []string{"1.21.13", "1.22.12", "1.23.12", "1.24.13", "1.25.7", "1.26.0"}

// subjects returns all programs, those in Java with the JDKs below directories.
func subjects(jdks []string) (all []subject) {
	for _, compile := range []string{
		"gcc -O0", "gcc -O1", "gcc -O2", "gcc -O3", "gcc -O2 -static", "gcc -O2 -fno-omit-frame-pointer", "clang -O2",
		"musl-gcc -O0", "musl-gcc -O2", "musl-gcc -O3", "musl-gcc -O2 -static",
	} {
		all = append(all, native(compile))
	}
	for _, version := range goVersions {
		all = append(all, golang("Go "+version, "go"+version))
	}
	all = append(all, golang("Go 1.26.0 -buildmode=pie", "go1.26.0", "-buildmode=pie"))
	return append(append(all, java(jdks)...), scripts()...)
}

// native returns the program in C as a command compiles it.
func native(compile string) subject {
	build := func(dir string) (command []string, err error) {
		program := filepath.Join(dir, "native")
		args := append(strings.Fields(compile), "-o", program, "testdata/native.c")
		return []string{program}, run(exec.Command(args[0], args[1:]...))
	}
	return subject{compile, build, strings.Contains(compile, "-fno-omit-frame-pointer")}
}

// golang returns the program in Go as a toolchain builds it.
func golang(name, toolchain string, flags ...string) subject {
	build := func(dir string) (command []string, err error) {
		source, err := filepath.Abs("testdata/golang/main.go")
		if err != nil {
			return nil, err
		}
		program := filepath.Join(dir, "golang")
		cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), source)...)
		cmd.Dir = dir // outside of our module, which needs another toolchain
		cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain, "GOFLAGS=", "CGO_ENABLED=0")
		return []string{program}, run(cmd)
	}
	return subject{name, build, true}
}

// taking returns a command that takes part: with a library that publishes for it, which is built in dir, and has some
// functions for it.
func taking(dir string, command ...string) ([]string, error) {
	library := filepath.Join(dir, "library.so")
	preloaded := append([]string{"env", "LD_PRELOAD=" + library}, command...)
	return preloaded, run(exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", library, "testdata/library.c"))
}

// run runs a command, whose output is only of interest when it fails.
func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
}
