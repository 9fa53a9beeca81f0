//go:build guest

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/check"
)

// A kernelOption is a setting of the kernel that differs from machine to machine, with what check says and
// run does under it, for a process of another user.
type kernelOption struct {
	circumstance
	set      func(t *testing.T) // nil: as it is
	rows     map[string]string  // what check says of some rows, as regular expressions
	refusal  string             // what run says when it does not start
	unserved string             // what run says of the process; empty: its samples arrive
	partial  string             // why run is not ready, beside that tests have a pid namespace of their own
}

const (
	hidden     = "hidepid=(2|4|invisible|ptraceable), which does not apply to CAP_SYS_PTRACE"
	unreadable = "reading the memory of the process is not permitted"
)

// kernelOptions are in the order in which they are set: what cannot be taken back comes last, and remains
// set for all that follow.
var kernelOptions = []kernelOption{
	{circumstance: circumstance{name: "unprivileged_bpf_disabled 2", works: true},
		set:  settings("kernel.unprivileged_bpf_disabled", "2", "kernel.perf_event_paranoid", "2"),
		rows: map[string]string{"kernel.unprivileged_bpf_disabled": "2: does not apply to CAP_BPF"}},
	{circumstance: circumstance{name: "unprivileged_bpf_disabled 2, no CAP_SYS_ADMIN", by: privileges(needed...),
		works: true},
		rows: map[string]string{"kernel.unprivileged_bpf_disabled": "2: does not apply to CAP_BPF"}},

	{circumstance: circumstance{name: "perf_event_paranoid 3", works: true},
		set:  settings("kernel.perf_event_paranoid", "3"),
		rows: map[string]string{"kernel.perf_event_paranoid": "^3: "}},
	{circumstance: circumstance{name: "perf_event_paranoid 3, no CAP_SYS_ADMIN", by: privileges(needed...),
		lacks: []string{"perf-cpu-clock", "sampler", "live-events"}, limited: []string{"kernel.perf_event_paranoid"}},
		set:     settings("kernel.perf_event_paranoid", "3"),
		rows:    map[string]string{"perf-cpu-clock": "kernel.perf_event_paranoid"},
		refusal: "kernel.perf_event_paranoid"},
	{circumstance: circumstance{name: "perf_event_paranoid 4", works: true},
		set:  settings("kernel.perf_event_paranoid", "4"),
		rows: map[string]string{"kernel.perf_event_paranoid": "^4: "}},
	{circumstance: circumstance{name: "perf_event_paranoid 4, no CAP_SYS_ADMIN", by: privileges(needed...),
		lacks: []string{"perf-cpu-clock", "sampler", "live-events"}, limited: []string{"kernel.perf_event_paranoid"}},
		refusal: "kernel.perf_event_paranoid"},
	{circumstance: circumstance{name: "perf_event_paranoid 4, fed, no CAP_SYS_ADMIN", by: privileges(needed...),
		flags: fed, works: true, lacks: []string{"live-events"}, limited: []string{"kernel.perf_event_paranoid"}},
		set: settings("kernel.perf_event_paranoid", "4")},

	{circumstance: circumstance{name: "hidepid=2", works: true},
		set: permitting(hiding("2")), rows: map[string]string{"hidepid": hidden}},
	{circumstance: circumstance{name: "hidepid=2, no CAP_SYS_ADMIN", by: privileges(needed...), works: true},
		set: permitting(hiding("2")), rows: map[string]string{"hidepid": hidden}},
	{circumstance: circumstance{name: "hidepid=4", works: true},
		set: permitting(hiding("4")), rows: map[string]string{"hidepid": hidden}},
	{circumstance: circumstance{name: "hidepid=4, no CAP_SYS_ADMIN", by: privileges(needed...), works: true},
		set: permitting(hiding("4")), rows: map[string]string{"hidepid": hidden}},

	{circumstance: circumstance{name: "lockdown=integrity", works: true},
		set: lockdown("integrity"), rows: map[string]string{"lockdown": "^integrity: "}},
	{circumstance: circumstance{name: "lockdown=integrity, no CAP_SYS_ADMIN", by: privileges(needed...), works: true},
		set:  settings("kernel.perf_event_paranoid", "2"),
		rows: map[string]string{"lockdown": "^integrity: "}},
	{circumstance: circumstance{name: "lockdown=confidentiality", lacks: []string{"lockdown", "sampler"}},
		set:     lockdown("confidentiality"),
		rows:    map[string]string{"lockdown": "boot with lockdown=integrity"},
		refusal: "lockdown=confidentiality.*boot with lockdown=integrity"},
	{circumstance: circumstance{name: "lockdown=confidentiality, no CAP_SYS_ADMIN", by: privileges(needed...),
		lacks: []string{"lockdown", "sampler"}},
		refusal: "lockdown=confidentiality.*boot with lockdown=integrity"},
	{circumstance: circumstance{name: "lockdown=confidentiality, fed", flags: fed, works: true,
		lacks: []string{"task-iterator"}}},
	{circumstance: circumstance{name: "lockdown=confidentiality, fed, no CAP_SYS_ADMIN", by: privileges(needed...),
		flags: fed, works: true, lacks: []string{"task-iterator"}}},
	{circumstance: circumstance{name: "yama.ptrace_scope 3, fed", flags: fed, works: true,
		lacks: []string{"kernel.yama.ptrace_scope", "process-memory"}},
		set:      settings("kernel.yama.ptrace_scope", "3"),
		rows:     map[string]string{"kernel.yama.ptrace_scope": "3: no process may read .*cannot be lowered"},
		unserved: unreadable, partial: "boot with 2 or less"},
	{circumstance: circumstance{name: "yama.ptrace_scope 3, fed, no CAP_SYS_ADMIN", by: privileges(needed...),
		flags: fed, works: true, lacks: []string{"kernel.yama.ptrace_scope", "process-memory"}},
		unserved: unreadable, partial: "boot with 2 or less"},
}

// check and run agree as they do on the machine that the tests are made on, where CAP_PERFMON suffices
// for perf events.
func TestCircumstances(t *testing.T) {
	settings("kernel.perf_event_paranoid", "2")(t)
	checkIn(t, circumstances)
}

func TestKernelOptions(t *testing.T) {
	needSampler(t)
	testenv.NeedTool(t, "setpriv")
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true, Placement: demo.Placement{UID: 4711, GID: 4711}})
	context := p.Begin(1)
	for _, o := range kernelOptions {
		t.Run(o.name, func(t *testing.T) {
			if o.set != nil {
				o.set(t)
			}
			dir := t.TempDir()
			by, flags := below(dir, o.by), below(dir, o.flags)
			results, works := checked(t, installed(t), by, flags)
			assert.Check(t, works == o.works, "check says that it works: %v", works)
			o.compare(t, results)
			for name, want := range o.rows {
				said := row(results, name)
				assert.Check(t, regexp.MustCompile(want).MatchString(said), "%s: %q, want %q", name, said, want)
			}
			if !o.works {
				started, said := starts(t, installed(t), by, flags)
				if started || !regexp.MustCompile(o.refusal).MatchString(said) {
					t.Errorf("run starts: %v, and says %q, want %q", started, said, o.refusal)
				}
				return
			}
			o.serves(t, p, context, startAgent(t, by, flags...), filepath.Join(dir, "feed"))
		})
	}
}

// serves checks what an agent that has started does with a process.
func (o *kernelOption) serves(t *testing.T, p *demo.Process, context demo.Context, a *agentProcess, socket string) {
	t.Helper()
	samples := func(report demo.Report) uint64 {
		transaction, _ := report.Transaction(context.TraceID)
		return transaction.Samples
	}
	if o.unserved != "" {
		a.unserved(p.PID, o.unserved)
	} else {
		a.registered(p.PID)
		before := samples(p.Report())
		if slices.Contains(o.flags, "--feed-socket") {
			command(t, fmt.Sprintf("%d %d TJMmu5gF-o-FiCwS6uckzg 1 %s %s\n", p.PID, context.Thread.TID,
				context.TraceID, context.TransactionID), "feed", "--socket", socket)
		}
		p.ReportWhen("samples of its transaction", func(r demo.Report) bool { return samples(r) > before })
	}
	partial := a.logged("not ready: only a part of the host's processes is served")
	assert.Check(t, o.partial == "" || len(partial) == 1 && strings.Contains(partial[0].Error, o.partial),
		"run says of being ready: %+v, want %q", partial, o.partial)
	a.end().addUp(t)
}

func row(results []check.Result, name string) string {
	i := slices.IndexFunc(results, func(r check.Result) bool { return r.Name == name })
	if i < 0 {
		return "no such row"
	}
	return results[i].Detail + "; " + results[i].Remedy
}

// settings sets some by sysctl. They remain.
func settings(pairs ...string) func(t *testing.T) {
	return func(t *testing.T) {
		for pair := range slices.Chunk(pairs, 2) {
			testenv.WriteFile(t, "/proc/sys/"+strings.ReplaceAll(pair[0], ".", "/"), pair[1])
		}
	}
}

// permitting lets CAP_PERFMON suffice for perf events, beside what set does.
func permitting(set func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		settings("kernel.perf_event_paranoid", "2")(t)
		set(t)
	}
}

// hiding sets an option of the procfs until the end of the test.
func hiding(value string) func(t *testing.T) {
	return func(t *testing.T) {
		remount := func(value string) {
			assert.NilError(t, unix.Mount("proc", "/proc", "proc", unix.MS_REMOUNT, "hidepid="+value))
		}
		remount(value)
		t.Cleanup(func() { remount("0") })
	}
}

// lockdown raises the kernel's mode for good.
func lockdown(mode string) func(t *testing.T) {
	return func(t *testing.T) { testenv.WriteFile(t, "/sys/kernel/security/lockdown", mode) }
}
