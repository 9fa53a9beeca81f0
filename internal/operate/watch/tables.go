package watch

import (
	"cmp"
	"maps"
	"strings"

	"correlator/internal/host/sorting"
	"correlator/internal/host/terminal"
)

type item struct {
	key   any
	cpu   float64 // the most first
	order string  // of those with the same
	cells func() []string

	subject *subject // whose stacks can be shown; nil: none
}

type table struct {
	name    string
	columns []terminal.Column
	items   []item
}

func (t *table) add(row item) { t.items = append(t.items, row) }

func (t *table) sort() *table {
	sorting.Sort(t.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.cpu, a.cpu), strings.Compare(a.order, b.order))
	})
	return t
}

func (t *table) keys() []any {
	keys := make([]any, len(t.items))
	for i := range t.items {
		keys[i] = t.items[i].key
	}
	return keys
}

func (t *table) lines(from, to, columns int) []string {
	rows := terminal.NewTable(t.columns...)
	for _, item := range t.items[from:to] {
		rows.Row(item.cells()...)
	}
	return rows.Lines(columns)
}

// hostColumn is shown where several agents publish to the broker.
var hostColumn = terminal.Column{Title: "HOST", Shrink: true}

// withHost adds a column of hosts to a table, if there are several.
func (s *snapshot) withHost(t *table, host func(key any) string) {
	if len(s.hosts) < 2 {
		return
	}
	t.columns = append(t.columns, hostColumn)
	for i := range t.items {
		cells, name := t.items[i].cells, s.hostName(host(t.items[i].key))
		t.items[i].cells = func() []string { return append(cells(), name) }
	}
}

func (s *snapshot) hostName(host string) string {
	if h := s.hosts[hostKey{Host: host}]; h != nil {
		return h.Name.Or(host)
	}
	return host
}

func (s *snapshot) processTable() *table {
	t := &table{name: "Processes", columns: []terminal.Column{
		{Title: "CPU", Right: true}, {Title: "TRACED", Right: true, Spare: 3}, {Title: "PID", Right: true},
		{Title: "SERVICE", Shrink: true}, {Title: "ENVIRONMENT", Shrink: true, Spare: 2},
		{Title: "CONTEXT", Spare: 4}, {Title: "CONTAINER", Spare: 5}, {Title: "STATE"},
		{Title: "ERROR", Shrink: true, Spare: 1},
	}}
	for key, p := range s.processes {
		order := s.service(key) + "\x00" + number(p.Pid)
		t.add(item{key: key, cpu: p.CPU.Value(), order: order, cells: func() []string {
			return []string{
				cpus(p.CPU), cpus(p.TracedCPU), number(p.Pid), s.service(key), p.Environment.Value(),
				strings.Join(p.Contexts.Value(), ","), short(p.ContainerID.Value()), p.State.Value(),
				p.LastError.Value(),
			}
		}})
	}
	s.withHost(t, func(key any) string { return key.(processKey).Host })
	return t.sort()
}

// threadTable shows the threads of a process; nil: of all.
func (s *snapshot) threadTable(only *processKey) *table {
	t := &table{name: "Threads", columns: []terminal.Column{
		{Title: "CPU", Right: true}, {Title: "TID", Right: true}, {Title: "NAME", Shrink: true},
		{Title: "PID", Right: true, Spare: 2}, {Title: "SERVICE", Shrink: true, Spare: 1}, {Title: "TRANSACTION"},
		{Title: "SPAN", Spare: 4}, {Title: "TRACE", Spare: 5}, {Title: "SINCE", Right: true},
		{Title: "RAN", Right: true, Spare: 3},
	}}
	for key, th := range s.threads {
		process := processKey{Host: key.Host, Pid: key.Pid}
		if only != nil && process != *only {
			continue
		}
		order := number(th.Pid) + "\x00" + number(th.Tid)
		of := &subject{transactionKey: transactionKey{Host: key.Host, TraceID: th.TraceID.Value(),
			TransactionID: th.TransactionID.Value()}}
		if !th.TraceID.IsSet() {
			of = processSubject(process)
		}
		t.add(item{key: key, cpu: th.CPU.Value(), order: order, subject: of, cells: func() []string {
			return []string{
				percentOf(th.CPU), number(th.Tid), th.Name.Value(), number(th.Pid), s.service(process),
				known(th.TransactionID.Value()), th.SpanID.Value(), th.TraceID.Value(), since(th.Since, s.at),
				since(th.LastRun, s.at),
			}
		}})
	}
	s.withHost(t, func(key any) string { return key.(threadKey).Host })
	return t.sort()
}

// service returns the name of a process's service, else of its program.
func (s *snapshot) service(key processKey) string {
	if p := s.processes[key]; p != nil {
		return cmp.Or(p.Service.Value(), p.Command.Value())
	}
	return ""
}

func (s *snapshot) transactionTable() *table {
	t := &table{name: "Transactions", columns: []terminal.Column{
		{Title: "CPU", Right: true}, {Title: "CPU TIME", Right: true}, {Title: "SERVICE", Shrink: true},
		{Title: "TRANSACTION"}, {Title: "TRACE", Spare: 4}, {Title: "THREADS", Right: true, Spare: 1},
		{Title: "PID", Right: true, Spare: 2}, {Title: "SINCE", Right: true}, {Title: "RAN", Right: true, Spare: 3},
	}}
	for key, x := range s.transactions {
		order := x.TransactionID.Value() + x.TraceID.Value()
		of := &subject{transactionKey: key}
		t.add(item{key: key, cpu: x.CPU.Value(), order: order, subject: of, cells: func() []string {
			return []string{
				cpus(x.CPU), timeOf(x.CPUTime), x.Service.Value(), known(x.TransactionID.Value()), x.TraceID.Value(),
				number(x.Threads), number(x.Pid), since(x.Since, s.at), since(x.LastRun, s.at),
			}
		}})
	}
	s.withHost(t, func(key any) string { return key.(transactionKey).Host })
	return t.sort()
}

// known returns an id as it is shown: one of zeros is none.
func known(id string) string {
	if strings.Trim(id, "0") == "" {
		return "-"
	}
	return id
}

// hostLine sums up the hosts.
func (s *snapshot) hostLine() string {
	if len(s.hosts) == 0 {
		return "no agent publishes to this broker"
	}
	keys := sorting.Sorted(maps.Keys(s.hosts), func(a, b hostKey) int { return strings.Compare(a.Host, b.Host) })
	texts := make([]string, 0, len(keys))
	for _, key := range keys {
		h := s.hosts[key]
		text := terminal.Escape(h.Name.Or(key.Host))
		if h.CPU.IsSet() && h.Cpus.IsSet() {
			text += ": " + cpus(h.CPU) + " of " + number(h.Cpus) + " CPUs in " + number(h.Processes) + " processes"
		}
		if h.AgentCPU.IsSet() {
			text += ", the agent " + percentOf(h.AgentCPU)
		}
		if h.SamplesPerSecond.Value() > 0 {
			text += ", " + number(h.SamplesPerSecond) + " samples/s"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
