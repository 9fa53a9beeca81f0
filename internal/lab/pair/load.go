package main

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// load is what profilers are measured beside.
type load struct {
	letter, what string
	rates        []int
	start        func(t testing.TB) (told []*demo.Process) // those to ask for what they were told
	flags        []string                                  // of the correlator
}

var (
	both = []int{20, 97}
	low  = []int{20}
	high = []int{97}
)

// loads are those of the table.
var loads = []load{
	{"a", "a C program, 2 busy threads", both, func(t testing.TB) []*demo.Process {
		return []*demo.Process{demo.Start(t, busy(2))}
	}, nil},
	{"b", "two JVMs (17, 25) whose stacks differ", both, func(t testing.TB) []*demo.Process {
		old, recent := demo.JVMOptions{Home: jdk17}, demo.JVMOptions{Home: jdk25}
		return []*demo.Process{startJVM(t, 1, old), startJVM(t, 1, recent)}
	}, nil},
	{"c", "a C program, a JVM, a Python program", both, func(t testing.TB) []*demo.Process {
		startPython(t)
		return []*demo.Process{demo.Start(t, busy(1)), startJVM(t, 1, demo.JVMOptions{Home: jdk17})}
	}, nil},
	{"d", "100 idle participants, 2 busy ones", both, func(t testing.TB) []*demo.Process {
		demo.StartMany(t, 100, demo.Options{})
		return startBusy(t, 2)
	}, nil},
	{"e", "64 processes of one busy thread", both, func(t testing.TB) []*demo.Process { return startBusy(t, 64) }, nil},
	{"f", "1000 participants whose two threads wake ten times a second, 2 busy ones", low,
		func(t testing.TB) []*demo.Process {
			files := demo.NewFiles(t, demo.Glibc)
			for range 1000 {
				demo.Start(t, demo.Options{Files: files, Idle: 2, Transaction: 100 * time.Millisecond, Gap: -1,
					ReadAtOnce: true})
			}
			return startBusy(t, 2)
		}, nil},
	{"g", "a busy JVM", high, func(t testing.TB) []*demo.Process {
		return []*demo.Process{startJVM(t, 2, demo.JVMOptions{})}
	}, nil},
	{"s", "a busy JVM whose receiver stands still", high, func(t testing.TB) []*demo.Process {
		startJVM(t, 2, demo.JVMOptions{NeverRead: true})
		return nil // it would read
	}, nil},
	{"h", "an idle participant", low, func(t testing.TB) []*demo.Process {
		demo.StartMany(t, 1, demo.Options{})
		return nil
	}, nil},
	{"i", "500 idle participants", low, func(t testing.TB) []*demo.Process {
		demo.StartMany(t, 500, demo.Options{})
		return nil
	}, nil},
	{"p", "500 processes of 10 threads that publish nothing", both, host("processes", 500), ofAll},
	{"q", "1000 processes a second that end at once", both, host("storm", 1000), ofAll},
}

// ofAll are the flags with which the correlator samples what the peer samples.
var ofAll = []string{"--processes", "all", "--otlp-untraced"}

const (
	jdk17 = "/usr/lib/jvm/java-17-openjdk-" + runtime.GOARCH
	jdk25 = "/usr/lib/jvm/temurin-25-jdk-" + runtime.GOARCH
)

func allLoads() (letters string) {
	for _, l := range loads {
		letters += l.letter
	}
	return letters
}

func selectLoads(letters string) (selected []load, err error) {
	for _, l := range loads {
		if strings.Contains(letters, l.letter) {
			selected = append(selected, l)
			letters = strings.ReplaceAll(letters, l.letter, "")
		}
	}
	if letters != "" {
		return nil, fmt.Errorf("there is no load %q", letters)
	}
	return selected, nil
}

// busy are the options of a process whose threads are always in a transaction, and have CPU.
func busy(threads int) demo.Options {
	return demo.Options{Busy: threads, Transaction: 500 * time.Millisecond, Gap: -1}
}

func startBusy(t testing.TB, n int) (all []*demo.Process) {
	options := busy(1)
	options.Files = demo.NewFiles(t, demo.Glibc)
	for range n {
		all = append(all, demo.Start(t, options))
	}
	return all
}

// startJVM starts a JVM whose threads serve requests: most of their stacks are seen once.
func startJVM(t testing.TB, threads int, o demo.JVMOptions) *demo.Process {
	o.Threads = threads
	jvm := demo.StartJVM(t, o)
	for thread := range threads {
		assert.NilError(t, jvm.Command(nil, "serve", fmt.Sprint(thread+1)))
	}
	return jvm
}

func host(what string, n int) func(t testing.TB) []*demo.Process {
	return func(t testing.TB) []*demo.Process {
		program := testenv.Compile(t, "cc", "internal/lab/pair/testdata/host.c")
		testenv.Start(t, exec.Command(program, what, fmt.Sprint(n)))
		return nil
	}
}

// startPython starts a program that serves requests, too, and publishes by OpenTelemetry's standards.
func startPython(t testing.TB) {
	python := testenv.NeedTool(t, "python3")
	library := filepath.Join(demo.Build(t, "otel-publisher-glibc"), "otel-publisher-glibc.so")
	stdin, stdout := testenv.Start(t, exec.Command(python, "testdata/python/shop.py", library, "orders", "test"))
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // until it ends
	_, err := fmt.Fprintln(stdin, "serve")
	assert.NilError(t, err)
}
