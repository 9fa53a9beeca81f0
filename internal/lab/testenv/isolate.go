package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// isolatedVariable is set in a process that [Main] has started in a pid namespace of its own, and
// in all its children.
const isolatedVariable = "TEST_ISOLATED"

// asChild runs a command as the child of a shell. The shell is process 1 of the pid namespace, and
// reaps orphans as an init does. "exit" keeps it from replacing itself by the command.
const asChild = `"$@"; exit $?`

// Main runs the tests of a package in a pid namespace of their own and returns their exit code; it
// is for TestMain. An agent under test serves all processes in its /proc. So isolated, it finds
// those that its own tests start, whatever else runs on the machine: tests of other packages, an
// agent or an instrumented JVM. Processes that a test leaves behind end with the namespace.
//
// Without root there is no such namespace, and no test that starts an agent.
func Main(m *testing.M) int {
	if os.Geteuid() != 0 || os.Getenv(isolatedVariable) != "" {
		return m.Run()
	}
	fmt.Fprintln(os.Stderr, "isolating the tests in a pid namespace:", isolate())
	return 1
}

// isolate replaces this process by one that runs the same tests in a pid namespace, with that
// namespace's /proc. It returns only errors.
func isolate() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	argv := append([]string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", asChild, "sh", self}, os.Args[1:]...)
	return unix.Exec(unshare, argv, append(os.Environ(), isolatedVariable+"=1"))
}
