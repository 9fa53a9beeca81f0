package inspect

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"correlator/internal/target"
)

// WriteProcesses writes the table that `scan` shows.
func WriteProcesses(w io.Writer, processes []target.View) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PID\tSTARTED\tSTATE\tSERVICE\tENVIRONMENT\tCONTAINER\tLIBC\tTLS\tSOCKET")
	for _, p := range processes {
		row(table, strconv.Itoa(p.PID), p.StartTime.Local().Format(time.DateTime), p.StateText(), p.ServiceName,
			p.ServiceEnvironment, shortID(p.ContainerID), p.Libc, p.TLS, p.SocketPath)
	}
	return table.Flush()
}

// shortID is as much of a container's id as engines print in their own tables.
func shortID(id string) string { return id[:min(len(id), 12)] }

// Write writes the tables that `inspect` shows.
func (i Inspection) Write(w io.Writer) error {
	head := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row(head, "pid", strconv.Itoa(i.PID))
	row(head, "started", i.StartTime.Local().Format(time.DateTime))
	row(head, "state", i.StateText())
	row(head, "service", i.ServiceName)
	row(head, "environment", i.ServiceEnvironment)
	row(head, "container", i.ContainerID)
	row(head, "cgroup", i.CgroupPath)
	row(head, "socket", i.SocketPath)
	row(head, "library", i.Library)
	row(head, "libc, tls", i.Libc+", "+i.TLS)
	if err := head.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "TID\tNAME\tTRACE\tTRANSACTION\tSPAN\tSAMPLED")
	for _, t := range i.Threads {
		if !t.TracePresent {
			row(table, strconv.Itoa(t.TID), t.Name, "("+t.Reason+")", "", "", "")
			continue
		}
		row(table, strconv.Itoa(t.TID), t.Name, t.TraceID, t.TransactionID, t.SpanID, strconv.FormatBool(t.TraceFlags&1 != 0))
	}
	return table.Flush()
}

// row prints one line of a table. What a process said of itself may hold anything: characters
// that do not print are shown as their escapes, so that it can neither break the table nor
// command the terminal.
func row(w io.Writer, cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cell = "-"
		}
		quoted := strconv.QuoteToGraphic(cell)
		cells[i] = quoted[1 : len(quoted)-1]
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}
