package attach

import (
	"maps"
	"slices"
	"sync"

	"correlator/procscan"
)

// Table has an Entry for each process. It is safe for concurrent use.
type Table struct {
	mu      sync.RWMutex
	byPID   map[int]*Entry      // that are shown
	entries map[*Entry]struct{} // that have not ended: of several processes that had one pid, too
	columns int
	ending  sync.WaitGroup // of entries
}

// NewTable returns a Table without processes.
func NewTable() *Table {
	return &Table{byPID: make(map[int]*Entry), entries: make(map[*Entry]struct{})}
}

// Add adds a process, whose Entry the caller must End. It is not found before Entry.Show.
func (t *Table) Add(id procscan.ProcessID) *Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending.Add(1)
	e := &Entry{table: t, id: id}
	t.entries[e] = struct{}{}
	return e
}

// Len returns how many processes are shown.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byPID)
}

// Entries returns all that have not ended, shown or not.
func (t *Table) Entries() []*Entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.entries))
}

// Wait waits until all have ended. None must be added meanwhile.
func (t *Table) Wait() { t.ending.Wait() }

// Entry is one process of a Table.
type Entry struct {
	table *Table
	id    procscan.ProcessID

	// Guarded by the table's mutex.
	values []any // by column
	hooks  []func()
	ended  bool
}

// Identity returns which process it is.
func (e *Entry) Identity() procscan.ProcessID { return e.id }

// Show has the process found, instead of one that had its pid before.
func (e *Entry) Show() {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	if !e.ended {
		e.table.byPID[e.id.PID] = e
	}
}

// Hide has the process found no longer. When it returns, no function is running that a Column has called
// with a value of the process.
func (e *Entry) Hide() {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	e.hide()
}

// hide is Hide with the table's mutex held. The pid may be another process's by now.
func (e *Entry) hide() {
	if e.table.byPID[e.id.PID] == e {
		delete(e.table.byPID, e.id.PID)
	}
}

// OnEnd has End call a function, before those that were passed to OnEnd earlier. It is called before End,
// and may be called by a function that End calls.
func (e *Entry) OnEnd(do func()) {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	e.hooks = append(e.hooks, do)
}

// End calls what was passed to OnEnd, hides the process if none of that did, and removes it from the table.
// It blocks as long as these functions. Called again, it does nothing.
func (e *Entry) End() {
	e.table.mu.Lock()
	if e.ended {
		e.table.mu.Unlock()
		return
	}
	e.ended = true
	e.table.mu.Unlock()
	for {
		e.table.mu.Lock()
		last := len(e.hooks) - 1
		if last < 0 {
			e.hide()
			e.values, e.hooks = nil, nil
			delete(e.table.entries, e)
			e.table.mu.Unlock()
			e.table.ending.Done()
			return
		}
		do := e.hooks[last]
		e.hooks = e.hooks[:last]
		e.table.mu.Unlock()
		do()
	}
}

// Column is what one package knows of each process of a Table: a value of type T, which goes when the
// process has ended. It is safe for concurrent use.
type Column[T any] struct {
	table *Table
	index int
}

// NewColumn adds a column to a table.
func NewColumn[T any](t *Table) *Column[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.columns++
	return &Column[T]{table: t, index: t.columns - 1}
}

// Set stores the value of a process that has not ended.
func (c *Column[T]) Set(e *Entry, value T) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	for len(e.values) <= c.index {
		e.values = append(e.values, nil)
	}
	e.values[c.index] = value
}

// Get returns the value of a process, shown or not, or the zero value if it has none.
func (c *Column[T]) Get(e *Entry) (value T) {
	c.table.mu.RLock()
	defer c.table.mu.RUnlock()
	value, _ = c.get(e)
	return value
}

func (c *Column[T]) get(e *Entry) (value T, ok bool) {
	if e == nil || c.index >= len(e.values) {
		return value, false
	}
	value, ok = e.values[c.index].(T)
	return value, ok
}

// Find returns the value of the process that has a pid, or the zero value if none that is shown has one.
func (c *Column[T]) Find(pid int) (value T) {
	c.table.mu.RLock()
	defer c.table.mu.RUnlock()
	value, _ = c.get(c.table.byPID[pid])
	return value
}

// View calls a function with find, which is Find: the processes are shown until it returns. It must not
// block, nor call other methods of the table.
func (c *Column[T]) View(do func(find func(pid int) T)) {
	c.table.mu.RLock()
	defer c.table.mu.RUnlock()
	do(func(pid int) T {
		value, _ := c.get(c.table.byPID[pid])
		return value
	})
}

// Each calls a function with the value of each process that is shown and has one; they are shown until
// the last call returns. It must not block, nor call other methods of the table.
func (c *Column[T]) Each(do func(value T)) {
	c.table.mu.RLock()
	defer c.table.mu.RUnlock()
	for _, e := range c.table.byPID {
		if value, ok := c.get(e); ok {
			do(value)
		}
	}
}

// All returns the values that Each would call a function with.
func (c *Column[T]) All() (values []T) {
	c.Each(func(value T) { values = append(values, value) })
	return values
}
