package inspect

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/host/terminal"
	"correlator/internal/stacks/unwind"
)

// WriteProcesses writes the table that `scan` shows.
func WriteProcesses(w io.Writer, processes []Process) error {
	table := terminal.NewTable(terminal.Column{Title: "PID", Right: true}, terminal.Column{Title: "STARTED", Spare: 3},
		terminal.Column{Title: "STATE"}, terminal.Column{Title: "SERVICE", Shrink: true},
		terminal.Column{Title: "ENVIRONMENT", Shrink: true}, terminal.Column{Title: "CONTEXT", Spare: 5},
		terminal.Column{Title: "RUNTIME", Spare: 1}, terminal.Column{Title: "CONTAINER", Spare: 4},
		terminal.Column{Title: "LIBC", Spare: 2}, terminal.Column{Title: "TLS", Spare: 1},
		terminal.Column{Title: "SOCKET", Shrink: true})
	views := make([]process.View, len(processes))
	for i, p := range processes {
		views[i] = p.View
		table.Row(strconv.Itoa(p.PID), p.StartTime.Local().Format(time.DateTime), p.StateText(), p.ServiceText(),
			p.ServiceEnvironment, p.ContextsText(), p.runtimeText(), p.ShortContainerID(), p.Libc, p.TLSText(),
			p.SocketPath)
	}
	err := table.Write(w)
	if below := append(process.Advice(views), Remarks(processes)...); err == nil && len(below) > 0 {
		_, err = io.WriteString(w, "\n"+strings.Join(below, "\n")+"\n")
	}
	return err
}

// runtimeText returns the runtimes that can be read, or else how stacks are walked.
func (p *Process) runtimeText() string {
	switch u := p.Unwinding; {
	case u == nil:
		return ""
	case len(u.Runtimes) > 0:
		return strings.Join(u.Runtimes, ", ")
	default:
		for _, r := range u.Remarks() {
			return r.How
		}
		return ""
	}
}

// Remarks returns lines about the stacks of processes, one for all of which the same is to be said.
func Remarks(processes []Process) (lines []string) {
	pids := make(map[unwind.Remark][]int)
	var all []unwind.Remark
	for _, p := range processes {
		if p.Unwinding == nil {
			continue
		}
		for _, r := range p.Unwinding.Remarks() {
			if pids[r] == nil {
				all = append(all, r)
			}
			pids[r] = append(pids[r], p.PID)
		}
	}
	for _, r := range all {
		lines = append(lines, terminal.Escape(r.Line(pids[r]...)))
	}
	return lines
}

// Write writes the tables that `inspect` shows.
func (i Inspection) Write(w io.Writer) error {
	head := terminal.NewTable(terminal.Column{}, terminal.Column{})
	head.Row("pid", strconv.Itoa(i.PID))
	head.Row("started", i.StartTime.Local().Format(time.DateTime))
	head.Row("state", i.StateText())
	head.Row("service", i.ServiceName)
	head.Row("environment", i.ServiceEnvironment)
	head.Row("context", i.ContextsText())
	if i.OTel != nil {
		writeOTel(head, i.OTel)
	}
	if i.Ignored != "" {
		head.Row("ignored", i.Ignored)
	}
	head.Row("container", i.ContainerID)
	head.Row("cgroup", i.CgroupPath)
	head.Row("socket", i.SocketPath)
	head.Row("library", i.Library)
	head.Row("libc, tls", strings.Trim(i.Libc+", "+i.TLSText(), ", "))
	if err := head.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	table := terminal.NewTable(terminal.Column{Title: "TID", Right: true}, terminal.Column{Title: "NAME", Shrink: true},
		terminal.Column{Title: "TRACE"}, terminal.Column{Title: "TRANSACTION"}, terminal.Column{Title: "SPAN"},
		terminal.Column{Title: "SAMPLED"})
	for _, t := range i.Threads {
		if !t.TracePresent {
			table.Row(strconv.Itoa(t.TID), t.Name, "("+t.Reason+")")
			continue
		}
		table.Row(strconv.Itoa(t.TID), t.Name, t.TraceID, cmp.Or(t.TransactionID, "-"), t.SpanID,
			strconv.FormatBool(t.TraceFlags&1 != 0))
	}
	return table.Write(w)
}

// writeOTel adds what a process publishes by OpenTelemetry's standards.
func writeOTel(head *terminal.Table, view *process.OTelView) {
	threads := view.Schema
	if threads != "" && view.TLS == "" {
		threads += " (not read)"
	}
	for _, row := range []struct{ title, text string }{
		{"namespace", view.ServiceNamespace},
		{"version", view.ServiceVersion},
		{"instance", view.ServiceInstanceID},
		{"sdk", view.SDK},
		{"thread contexts", threads},
		{"attribute keys", strings.Join(view.Keys, ", ")},
		{"otel_thread_ctx_v1", view.TLS},
	} {
		if row.text != "" {
			head.Row(row.title, row.text)
		}
	}
}
