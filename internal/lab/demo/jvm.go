package demo

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"correlator/internal/lab/testenv"
)

// JVMOptions say how the JVM starts.
type JVMOptions struct {
	Service     string // default "demo"
	Environment string // default "test"
	Threads     int    // Java threads beside the main one, each with a slot of its own after its first Begin
	Busy        bool   // they burn CPU while in a transaction

	// Work, if set, is what the threads, at most three, do at once and for good, in one transaction of
	// 40 ms after the other: "mixed" (streams, lambdas, exceptions, native code down and up),
	// "recursive" (30 calls), "deep" (300) or "virtual" (in virtual threads). Stacks of it have the
	// method Work.own1 of the thread with index 1, and so on.
	Work string

	NeverRead     bool     // never read the socket
	FramePointers bool     // stacks of Java code can be walked without an engine
	Home          string   // of the JDK; "": java is in PATH
	Flags         []string // more options

	Placement
}

// StartJVM starts a JVM that has loaded its copy of the agent library, bound its socket and
// published its storage. It knows the commands Begin, End, WaitIn, Threads, Publish, Withdraw, Restart,
// Report and Quit; without Work, transactions begin by command only. Thread 0 is Java's main
// thread, whose tid is not the pid. Loaded has no Base.
func StartJVM(t testing.TB, o JVMOptions) *Process {
	t.Helper()
	java := filepath.Join(o.Home, "bin/java")
	if o.Home == "" {
		java = testenv.NeedTool(t, "java")
	} else if _, err := os.Stat(java); err != nil {
		testenv.Missing(t, "needs a JDK in "+o.Home)
	}
	built := BuildWith(t, []string{"javac", "cc"}, "demo-jvm")
	if o.NeverRead {
		o.Env = append(slices.Clone(o.Env), "NEVER_READ=1")
	}
	if _, isTest := t.(*testing.T); isTest && rests {
		o.Env = append(slices.Clone(o.Env), "REST=1")
	}
	l := newLauncher(t, o.Placement)
	jar := l.add(filepath.Join(built, "demo-jvm.jar"), "demo.jar", 0o644)
	library := l.add(filepath.Join(built, "demo-jvm.so"), LibraryName(false), 0o600)
	socket := filepath.Join(l.dir, "agent.socket")
	if o.Service == "" {
		o.Service = "demo"
	}
	if o.Environment == "" {
		o.Environment = "test"
	}
	work := "idle"
	if o.Busy {
		work = "busy"
	}
	if o.Work != "" {
		work = o.Work
	}
	// Small and quiet: many may run beside each other, and nothing but our files is in /tmp.
	argv := []string{java, "-XX:+UseSerialGC", "-Xmx64m", "-XX:-UsePerfData"}
	if o.FramePointers {
		argv = append(argv, "-XX:+PreserveFramePointer")
	}
	argv = append(argv, o.Flags...)
	p := l.start(t, append(argv, "-cp", jar, "Demo",
		library, socket, o.Service, o.Environment, strconv.Itoa(o.Threads), work))
	p.Library = library
	p.Socket = socket
	return p
}
