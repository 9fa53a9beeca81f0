package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Attacker is a user without rights, whose processes attack paths.
const Attacker = 1000

const attackVariable = "CORRELATOR_TEST_ATTACK"

// The binary of each test that imports this package is the attacking process, too.
func init() {
	if os.Getenv(attackVariable) != "" {
		exchange(os.Args[1], os.Args[2])
	}
}

// ExchangeNames starts a process of Attacker that exchanges two names in a directory, again and
// again until the end of the test, whenever both exist.
func ExchangeNames(t testing.TB, dir, a, b string) {
	t.Helper()
	NeedRoot(t)
	opened, err := os.Open(dir) // those of tests are below one that only root may enter
	assert.NilError(t, err)
	defer opened.Close()
	cmd := exec.Command("/proc/self/exe", a, b)
	cmd.Env = append(os.Environ(), attackVariable+"=1")
	cmd.ExtraFiles = []*os.File{opened} // becomes 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Attacker, Gid: Attacker}}
	_, stdout := Start(t, cmd)
	_, err = io.ReadFull(stdout, make([]byte, 1))
	assert.NilError(t, err, "starting the attacker")
}

func exchange(a, b string) {
	go func() { // exits when the test has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Print("x")
	const dir = 3
	var err error
	for err == nil || errors.Is(err, unix.ENOENT) {
		err = unix.Renameat2(dir, a, dir, b, unix.RENAME_EXCHANGE)
	}
	fmt.Fprintf(os.Stderr, "exchanging %s and %s: %v\n", a, b, err)
	os.Exit(1)
}
