package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// needed are the capabilities in the README, except CAP_SYSLOG and CAP_SYS_ADMIN, which includes
// some of them.
var needed = []string{"sys_ptrace", "bpf", "perfmon", "checkpoint_restore", "dac_read_search", "setuid", "setgid"}

func without(capability string) []string {
	return slices.DeleteFunc(slices.Clone(needed), func(c string) bool { return c == capability })
}

// notRead is logged for processes that cannot be examined. Recent kernels let CAP_PERFMON read
// maps; then the next step fails.
const notRead = "opening maps: not permitted|reading map_files: not permitted"

// rights is the table of docs/security.md: what the agent logs without a capability, and which
// processes it does not serve.
var rights = []struct {
	name         string
	capabilities []string
	flags        []string
	pins         bool              // pins its table, and has a feed socket
	user         string            // runs as this one instead of root
	ends         string            // says this, with exit code 1; empty: runs on
	warns        string            // says this
	unserved     map[string]string // what is said of processes; the others are served
}{
	{name: "all", capabilities: needed, pins: true},
	{name: "another user", capabilities: needed, user: "1000"},
	{name: "no sys_ptrace", capabilities: without("sys_ptrace"), unserved: map[string]string{
		"root": notRead, "user": notRead, "deleted": notRead, "namespace": notRead,
	}},
	{name: "no bpf", capabilities: without("bpf"),
		ends: `loading identity iterator: missing CAP_BPF: grant the process CAP_BPF\n$`},
	{name: "no perfmon", capabilities: without("perfmon"),
		ends: `loading identity iterator: missing CAP_PERFMON: grant the process CAP_PERFMON\n$`},
	{name: "no checkpoint_restore", capabilities: without("checkpoint_restore"), unserved: map[string]string{
		"deleted": `opening map_files/.*: not permitted: operation not permitted; opening the path below the process's root: no such file`,
	}},
	{name: "sys_admin instead", capabilities: []string{"sys_ptrace", "sys_admin", "dac_read_search", "setuid",
		"setgid"}},
	{name: "no dac_read_search", capabilities: without("dac_read_search"), unserved: map[string]string{
		"user": "map_files: not permitted", "deleted": "map_files: not permitted", "namespace": "map_files: not " +
			"permitted",
	}},
	{name: "no setuid", capabilities: without("setuid"), unserved: map[string]string{
		"user": "setting filesystem user 4711$", "deleted": "setting filesystem user 4711$", "namespace": "setting " +
			"filesystem user 4712$",
	}},
	{name: "no setgid", capabilities: without("setgid"), unserved: map[string]string{
		"user": "setting groups: ", "deleted": "setting groups: ", "namespace": "setting groups: ",
	}},
	{name: "kernel stacks", capabilities: append(without(""), "syslog"), flags: []string{"--kernel-stacks"}},
	{name: "kernel stacks, no syslog", capabilities: needed, flags: []string{"--kernel-stacks"},
		warns: "stacks have no kernel frames"},
}

// Each capability is needed for what docs/security.md says, and no other is.
func TestRights(t *testing.T) {
	needSampler(t)
	setpriv := testenv.NeedTool(t, "setpriv")
	another := demo.Placement{UID: 4711, GID: 4711}
	root := demo.Start(t, demo.Options{})
	user := demo.Start(t, demo.Options{Placement: another})
	deleted := demo.Start(t, demo.Options{Placement: another})
	deleted.UnlinkLibrary()
	processes := map[string]int{"root": root.PID, "user": user.PID, "deleted": deleted.PID,
		"namespace": startInUserNamespace(t, "4712")}
	for _, c := range rights {
		t.Run(c.name, func(t *testing.T) {
			by, set := rootWith(setpriv, c.capabilities), capabilitySet(c.capabilities)
			if c.user != "" {
				by = []string{setpriv, "--reuid", c.user, "--regid", c.user, "--clear-groups", "--inh-caps", set,
					"--ambient-caps", set, "--bounding-set", set}
			}
			flags := append(c.flags, "--samples-per-second", "97")
			if c.flags != nil {
				needSecretive(t)
			}
			if c.pins {
				flags = append(flags, "--pin-maps", filepath.Join(mountBPF(t), "correlator"), "--feed-socket",
					filepath.Join(t.TempDir(), "feed"))
			}
			a := startAgent(t, by, flags...)
			if c.ends != "" {
				a.command.Wait()
				text, err := os.ReadFile(a.log)
				if err != nil || a.command.ProcessState.ExitCode() != 1 || !regexp.MustCompile(c.ends).Match(text) {
					t.Errorf("ended with %v and said %q, want %q", a.command.ProcessState, text, c.ends)
				}
				return
			}
			for name, pid := range processes {
				if said := c.unserved[name]; said != "" {
					a.unserved(pid, said)
				} else {
					a.registered(pid)
				}
			}
			if c.unserved == nil {
				getsSamples(t, deleted)
			}
			warned := len(a.logged(c.warns)) > 0
			assert.Check(t, warned == (c.warns != ""), "warned: %v", warned)
			deaf := a.logged(noLiveEvents)
			assert.Check(t, len(deaf) == 0, "logged %+v", deaf)
			a.end().addUp(t)
		})
	}
}

// Without CAP_PERFMON, and without a sampler, which would not start, only sweeps find new
// processes. This is logged once.
func TestRightsWithoutLiveEvents(t *testing.T) {
	testenv.NeedRoot(t)
	if paranoid := kernelSetting(t, "perf_event_paranoid"); paranoid <= 0 {
		testenv.Missing(t, "needs kernel.perf_event_paranoid to be 1 or more: else nothing is refused")
	}
	a := startAgent(t, rootWith(testenv.NeedTool(t, "setpriv"), without("perfmon")),
		"--samples-per-second", "0", "--feed-socket", filepath.Join(t.TempDir(), "feed"))
	testenv.Poll(t, deadline, "word that there are no live events",
		func() bool { return len(a.logged(noLiveEvents)) > 0 })
	later := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	later.Registration(1)
	counted := a.end()
	said := a.logged(noLiveEvents)
	assert.Check(t, len(said) == 1 && said[0].Level == "warn" && strings.Contains(said[0].Error, "needs CAP_PERFMON"),
		"logged %+v", said)
	assert.Check(t, counted["live_looks"] == 0 && counted["events_failed"] != 0, "counters %v", counted)
}

// noLiveEvents is logged when the kernel refuses live events.
const noLiveEvents = "no live events: new processes are found by sweeps alone"

// capabilitySet returns some capabilities, and no others, in the form of setpriv.
func capabilitySet(capabilities []string) string { return "-all,+" + strings.Join(capabilities, ",+") }

// rootWith returns a command that runs others as root with some capabilities only.
func rootWith(setpriv string, capabilities []string) []string {
	return []string{setpriv, "--bounding-set", capabilitySet(capabilities), "--inh-caps", "-all"}
}

// unserved waits until the agent has logged that, and why, it cannot serve a process.
func (a *agentProcess) unserved(pid int, why string) {
	a.t.Helper()
	pattern := regexp.MustCompile(why)
	testenv.Poll(a.t, deadline, why, func() bool {
		return slices.ContainsFunc(a.entries(), func(e logEntry) bool {
			return e.PID == pid && e.Level == "warn" && pattern.MatchString(e.Error)
		})
	})
	assert.Check(a.t, !slices.ContainsFunc(a.logged("registered"), func(e logEntry) bool { return e.PID == pid }),
		"process %d is served", pid)
}

// needSecretive skips the test unless the kernel shows its addresses only to processes with
// CAP_SYSLOG (kallsyms_show_value).
func needSecretive(t *testing.T) {
	t.Helper()
	restrict, paranoid := kernelSetting(t, "kptr_restrict"), kernelSetting(t, "perf_event_paranoid")
	if restrict > 1 || restrict == 0 && paranoid <= 1 {
		testenv.Missing(t, "needs kernel.kptr_restrict=1: kernel addresses are shown to nobody, or to everybody")
	}
}

func kernelSetting(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/kernel/" + name)
	assert.NilError(t, err)
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	assert.NilError(t, err)
	return value
}

// startInUserNamespace starts a demo process in the user namespace of an ordinary user, in which it
// is root.
func startInUserNamespace(t *testing.T, id string) (pid int) {
	t.Helper()
	unshare := testenv.NeedTool(t, "unshare")
	built := demo.Build(t, "demo-glibc", "lib-glibc-tlsdesc")
	dir, err := os.MkdirTemp("", "demo-") // which others can enter
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	library := filepath.Join(dir, demo.LibraryName(false))
	for _, argv := range [][]string{
		{"cp", filepath.Join(built, "demo-glibc"), dir},
		{"install", "--mode", "600", filepath.Join(built, "lib-glibc-tlsdesc.so"), library},
		{"chown", "-R", id + ":" + id, dir},
	} {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		assert.NilError(t, err, "%v: %v\n%s", argv, err, out)
	}
	cmd := exec.Command("setpriv", "--reuid", id, "--regid", id, "--clear-groups", unshare, "--user",
		"--map-root-user", "--mount",
		filepath.Join(dir, "demo-glibc"), "--library", library, "--socket", filepath.Join(dir, "socket"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	assert.NilError(t, err)
	stdout, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // its first event
		testenv.Missing(t, "an ordinary user may not make a user namespace")
	}
	return cmd.Process.Pid
}
