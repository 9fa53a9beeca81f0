package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/inspect"
)

// procRootElsewhere returns a command that runs others where the host's procfs is mounted at the
// returned procRoot, after a shell command, which gets that directory as $0, has changed /proc.
func procRootElsewhere(t *testing.T, change string) (contained []string, procRoot string) {
	t.Helper()
	procRoot = filepath.Join(t.TempDir(), "proc")
	assert.NilError(t, os.Mkdir(procRoot, 0o755))
	script := `mount --bind /proc "$0" && ` + change + ` && exec "$@"`
	return []string{testenv.NeedTool(t, "unshare"), "--mount", "sh", "-c", script, procRoot}, procRoot
}

// jsonOf runs a command in such a place and parses its output.
func jsonOf[T any](t *testing.T, contained []string, args ...string) (value T) {
	t.Helper()
	argv := slices.Concat(contained, []string{installed(t)}, args, []string{"-o", "json"})
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err == nil {
		err = json.Unmarshal(out, &value)
	}
	assert.NilError(t, err, args)
	return value
}

// Nothing in /proc is used except what the eBPF library reads about ourselves.
func TestProcRootElsewhere(t *testing.T) {
	needSampler(t)
	contained, procRoot := procRootElsewhere(t, `mount -t tmpfs none /proc && ln -s "$0/self" /proc/self`)
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	a := startAgent(t, contained, "--proc-root", procRoot, "--samples-per-second", "997", "--kernel-stacks")
	registration := p.Registration(1)
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && registration.HostID != strings.TrimSpace(string(id)) {
		t.Errorf("registered with host id %q on host %s", registration.HostID, id)
	}
	context := p.Begin(1)
	clean(t, p.ReportWhen("samples", func(report demo.Report) bool {
		transaction, _ := report.Transaction(context.TraceID)
		return transaction.Samples >= 10
	}))

	processes := jsonOf[[]process.View](t, contained, "scan", "--proc-root", procRoot)
	i := slices.IndexFunc(processes, func(v process.View) bool { return v.PID == p.PID })
	if i < 0 || processes[i].State != process.StateReady || processes[i].TLS != "static" ||
		processes[i].CgroupPath == "" {
		t.Errorf("process %d is not ready: %+v", p.PID, processes)
	}
	inspection := jsonOf[inspect.Inspection](t, contained, "inspect", "--proc-root", procRoot, strconv.Itoa(p.PID))
	assert.Check(t, slices.ContainsFunc(inspection.Threads, func(thread inspect.Thread) bool {
		return thread.TID == context.Thread.TID && thread.Name == context.Thread.Name &&
			thread.TransactionID == context.TransactionID.String()
	}), "inspect does not show the transaction: %+v", inspection)

	a.end().addUp(t)
	for _, entry := range a.entries() {
		assert.Check(t, entry.Level == "info" || entry.PID != p.PID, "logged %+v", entry)
	}
}

// What needs no eBPF also works without /proc.
func TestProcRootAlone(t *testing.T) {
	testenv.NeedRoot(t)
	for name, change := range map[string]string{
		"nothing at /proc":      "mount -t tmpfs none /proc",
		"another pid namespace": "unshare --pid --fork mount -t proc proc /proc",
	} {
		t.Run(name, func(t *testing.T) {
			contained, procRoot := procRootElsewhere(t, change)
			p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
			processes := jsonOf[[]process.View](t, contained, "scan", "--proc-root", procRoot)
			i := slices.IndexFunc(processes, func(v process.View) bool { return v.PID == p.PID })
			if i < 0 || processes[i].State != process.StateReady || processes[i].TLS != "static" {
				t.Errorf("process %d is not ready: %+v", p.PID, processes)
			}

			socket := filepath.Join(t.TempDir(), "feed")
			a := startAgent(t, contained, "--proc-root", procRoot, "--samples-per-second", "0",
				"--samples-delay", "30s", "--feed-socket", socket)
			p.Registration(1)
			context := p.Begin(1)
			command(t, fmt.Sprintf("%d %d TJMmu5gF-o-FiCwS6uckzg 1 %s %s\n", p.PID, context.Thread.TID,
				context.TraceID, context.TransactionID),
				"feed", "--socket", socket)
			clean(t, p.ReportWhen("the sample", func(report demo.Report) bool { return report.Samples == 1 }))

			// The log is not checked: without /proc the race detector complains in it.
			assert.NilError(t, a.command.Process.Signal(syscall.SIGTERM))
			err := a.command.Wait()
			assert.Check(t, err, "the agent ended with %v", err)
		})
	}
}
