package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/names/symbolizer"
	"correlator/internal/worker/access"
)

// Workers that are started often begin before the packages that they do not use are initialized.
func TestWorkersStartEarly(t *testing.T) {
	for _, name := range []string{access.Kind.Name, symbolizer.Kind.Name, symbolizer.LiveKind.Name} {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		assert.NilError(t, err)
		assert.NilError(t, unix.Close(ends[0])) // the agent's: the worker ends when it looks for a message
		channel := os.NewFile(uintptr(ends[1]), "channel")
		ctx, cancel := context.WithTimeout(t.Context(), deadline) // for a worker that does not end
		defer cancel()
		command := exec.CommandContext(ctx, "/proc/self/exe")
		command.Args = []string{"correlator-worker", name, "/proc"}
		command.Env = []string{"GODEBUG=inittrace=1"}
		command.ExtraFiles = []*os.File{channel}
		output, err := command.CombinedOutput()
		channel.Close()
		assert.NilError(t, err, "%s: %s", name, output)
		initialized := make(map[string]bool)
		for line := range strings.Lines(string(output)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "init" {
				initialized[fields[1]] = true
			}
		}
		assert.Check(t, initialized["correlator/elfsym"], "%s: %s", name, output)
		for _, unused := range []string{"net", "regexp", "google.golang.org/grpc", "github.com/prometheus/procfs"} {
			assert.Check(t, !initialized[unused], "%s waits for what is initialized late: %s", name, unused)
		}
	}
}
