package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind"
	"correlator/procscan"
	"correlator/procscan/javaagent"
)

func TestScan(t *testing.T) {
	testenv.NeedRoot(t)
	ready := demo.Start(t, demo.Options{Flavor: demo.GlibcDynamic, Service: "scanned", Environment: "test", Idle: 1})
	silent := demo.Start(t, demo.Options{Hold: true})
	silent.Load()
	broken := demo.Start(t, demo.Options{Hold: true})
	broken.Load()
	broken.Hostile("socket-missing", "")
	older := demo.Start(t, demo.Options{Library: demo.Fixture(t, demo.Machine+"-glibc-older"), Hold: true})
	older.Load()

	processes, _, err := Scan(t.Context(), "/proc", process.Filter{})
	assert.NilError(t, err)
	views := make(map[int]Process)
	for _, p := range processes {
		views[p.PID] = p
	}
	for _, c := range []struct {
		process           *demo.Process
		state             process.State
		reason, libc, tls string
	}{
		{ready, process.StateReady, "", "glibc", "dynamic"},
		{silent, process.StateNoStorage, "", "", "unresolved"},
		{broken, process.StateError, "socket_missing", "glibc", "static"},
	} {
		view := views[c.process.PID]
		assert.Check(t, view.State == c.state && view.Reason == c.reason && view.Libc == c.libc && view.TLS == c.tls,
			"view %+v, want %+v", view, c)
		examined := c.state != process.StateError
		assert.Check(t, (view.Unwinding != nil) == examined, "runtimes %+v of %+v", view.Unwinding, view)
		assert.Check(t, !examined || len(view.Unwinding.Remarks())+len(view.Unwinding.Runtimes) == 0, view.Unwinding)
	}
	view := views[ready.PID]
	assert.Check(t, view.ServiceName == "scanned" && view.Library == ready.Library && view.SocketPath == ready.Socket,
		"view %+v", view)
	view, ok := views[older.PID]
	assert.Check(t, !ok, "process with the library of an older agent is listed: %+v", view)
	report := ready.Report()
	assert.Check(t, report.Messages == 0, "scanning sent %d messages", report.Messages)
}

func TestInspect(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 2, Untouched: 1})
	context := p.Begin(1)
	p.Begin(2)
	p.End(2)
	inspection, err := Inspect(t.Context(), "/proc", p.PID)
	assert.NilError(t, err)
	seen := make(map[int]Thread)
	for _, thread := range inspection.Threads {
		seen[thread.TID] = thread
	}
	threads := p.Threads()
	want := Thread{
		TID: threads[1].TID, Name: threads[1].Name, Slot: fmt.Sprintf("%#x", threads[1].Slot), Valid: true,
		TracePresent: true, TraceFlags: 1,
		TraceID: context.TraceID.String(), SpanID: context.SpanID.String(),
		TransactionID: context.TransactionID.String(),
	}
	got := seen[threads[1].TID]
	assert.Check(t, got == want, "thread in a transaction\n got %+v\nwant %+v", got, want)
	if got := seen[threads[2].TID]; got.Reason != "no_trace" || !got.Valid || got.TraceID != "" {
		t.Errorf("thread without a transaction: %+v", got)
	}
	got = seen[threads[3].TID]
	assert.Check(t, got.Reason == "no_slot" && got.Slot == "", "thread that never touched the variable: %+v", got)

	_, err = Inspect(t.Context(), "/proc", 1<<30)
	assert.Check(t, errors.Is(err, procscan.ErrGone), "no process: %v, want ErrGone", err)
	other := demo.Start(t, demo.Options{Hold: true})
	_, err = Inspect(t.Context(), "/proc", other.PID)
	assert.Check(t, errors.Is(err, errNotTarget), "process without the library: %v, want ErrNotTarget", err)
}

func TestWithin(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	got := within(testenv.Ended(), "late", func() string { <-block; return "result" })
	assert.Check(t, got == "late", "of something that hangs: %q", got)
	got = within(t.Context(), "late", func() string { return "result" })
	assert.Check(t, got == "result", "of something that returns: %q", got)
}

func TestWriteProcesses(t *testing.T) {
	view := process.View{PID: 7, State: process.StateFiltered, ServiceName: "a\tb", Library: "/l.so", TLS: "static",
		Contexts:    []string{"elastic"},
		ContainerID: "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101", CgroupPath: "/docker/\x1b[31m"}
	var table strings.Builder
	processes := []Process{{View: view, Unwinding: &unwind.Readability{Runtimes: []string{"JVM 17", "V8 1\t2"}}}}
	assert.NilError(t, WriteProcesses(&table, processes))
	lines := strings.Split(table.String(), "\n")
	titles := strings.Fields("PID STARTED STATE SERVICE ENVIRONMENT CONTEXT RUNTIME CONTAINER LIBC TLS SOCKET")
	assert.DeepEqual(t, strings.Fields(lines[0]), titles)
	want := []string{"7", view.StartTime.Local().Format(time.DateOnly), view.StartTime.Local().Format(time.TimeOnly),
		"filtered", `a\tb`, "-", "elastic", "JVM", "17,", "V8", `1\t2`, "5ebf11e02dbd", "-", "static", "-"}
	got := strings.Fields(lines[1])
	assert.Check(t, slices.Equal(got, want), "got %q", got)
}

// What is to be said of stacks is said once of all processes of which it is the same, below what to do about silent
// agents, and is nothing that a terminal obeys.
func TestWriteRemarks(t *testing.T) {
	refused := &unwind.Readability{Refused: "V8: why\x1b"}
	both := &unwind.Readability{Refused: "V8: why\x1b", Unknown: "Python 9 was not tried",
		Runtimes: []string{"Python 9"}}
	silent := process.View{PID: 4, State: process.StateSilent,
		Agent: &javaagent.Agent{Reasons: []javaagent.Reason{"x"}}}
	var text strings.Builder
	assert.NilError(t, WriteProcesses(&text, []Process{
		{View: process.View{PID: 1}, Unwinding: refused}, {View: process.View{PID: 2}, Unwinding: both}, {View: silent},
		{View: process.View{PID: 5}, Unwinding: &unwind.Readability{Failure: "not ready"}},
		{View: process.View{PID: 6}, Unwinding: new(unwind.Readability)},
	}))
	table, below, _ := strings.Cut(text.String(), "\n\n")
	rows := strings.Split(table, "\n")
	for i, runtime := range []string{" as native code ", " Python 9 ", "", " by frame pointers ", ""} {
		assert.Check(t, strings.Contains(rows[i+1], runtime), "%q", rows[i+1])
	}
	_, remarks, _ := strings.Cut(below, "\n")
	assert.Equal(t, remarks, `stacks of 1, 2 as native code: V8: why\x1b
stacks of 2 with doubts: Python 9 was not tried
stacks of 5 by frame pointers: not ready
`)
}
