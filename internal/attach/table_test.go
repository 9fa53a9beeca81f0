package attach

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/procscan"
)

func id(pid, start int) procscan.ProcessID {
	return procscan.ProcessID{PID: pid, StartTime: uint64(start)}
}

// Whatever happens to processes, in whichever order: each is found by its pid from Show to Hide or End, unless a
// later one has its pid; its functions are called once, the last first; and nothing of it is left then.
func TestTable(t *testing.T) {
	type model struct {
		*Entry
		values map[int]int // by column
		hooks  int
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		table := NewTable()
		columns := []*Column[int]{NewColumn[int](table), NewColumn[int](table), NewColumn[int](table)}
		var entries []*model
		shown := make(map[int]*model)
		hide := func(m *model) {
			if shown[m.id.PID] == m {
				delete(shown, m.id.PID)
			}
		}
		for step := range 100 {
			if len(entries) == 0 || random.IntN(4) == 0 {
				entries = append(entries, &model{Entry: table.Add(id(random.IntN(5), step)), values: make(map[int]int)})
			}
			i := random.IntN(len(entries))
			m := entries[i]
			switch random.IntN(6) {
			case 0:
				m.Show()
				shown[m.id.PID] = m
			case 1:
				m.Hide()
				hide(m)
			case 2, 3:
				c := random.IntN(len(columns))
				columns[c].Set(m.Entry, step)
				m.values[c] = step
			case 4:
				number := m.hooks
				m.hooks++
				m.OnEnd(func() {
					if m.hooks--; m.hooks != number {
						t.Fatalf("seed %d: function %d called, want %d", seed, number, m.hooks)
					}
				})
			case 5:
				m.End()
				m.End()
				m.Show() // too late
				hide(m)
				if entries = slices.Delete(entries, i, i+1); m.hooks != 0 || m.Entry.values != nil {
					t.Fatalf("seed %d: %d functions not called, and values %v, after the end", seed, m.hooks, m.Entry.values)
				}
			}
			if got := table.Entries(); len(got) != len(entries) || table.Len() != len(shown) {
				t.Fatalf("seed %d: %d entries and %d shown, want %d and %d", seed, len(got), table.Len(), len(entries),
					len(shown))
			}
			for c, column := range columns {
				var want []int
				for pid := range 5 {
					var value int
					if m := shown[pid]; m != nil {
						if v, ok := m.values[c]; ok {
							want, value = append(want, v), v
						}
					}
					if got := column.Find(pid); got != value {
						t.Fatalf("seed %d: %d found for pid %d, want %d", seed, got, pid, value)
					}
				}
				got := column.All()
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: values %v, want %v", seed, got, want)
				}
				for _, m := range entries { // shown or not
					if got := column.Get(m.Entry); got != m.values[c] {
						t.Fatalf("seed %d: value %d, want %d", seed, got, m.values[c])
					}
				}
			}
		}
		for _, m := range entries {
			m.End()
		}
		table.Wait()
		assert.Assert(t, len(table.byPID)+len(table.entries) == 0,
			"seed %d: %v, %v are left", seed, table.byPID, table.entries)
	}
}

// A process that ends late hides nobody who has its pid by then.
func TestReusedPID(t *testing.T) {
	table := NewTable()
	column := NewColumn[string](table)
	old, next := table.Add(id(4711, 1)), table.Add(id(4711, 2))
	column.Set(old, "old")
	column.Set(next, "next")
	old.Show()
	next.Show()
	old.Hide()
	old.End()
	got := column.Find(4711)
	assert.Check(t, got == "next", "%q has the pid", got)
	next.End()
	got = column.Find(4711)
	assert.Check(t, got == "", "%q has the pid after the end", got)
}

// A function that is called at the end may register another: it is called next.
func TestOnEndWithinEnd(t *testing.T) {
	var called []string
	e := NewTable().Add(id(1, 1))
	e.OnEnd(func() { called = append(called, "first") })
	e.OnEnd(func() {
		e.OnEnd(func() { called = append(called, "third") })
		called = append(called, "second")
	})
	e.End()
	want := []string{"second", "third", "first"}
	assert.Check(t, slices.Equal(called, want), "%v, want %v", called, want)
}

// When Hide has returned, nobody is within View or Each with a value of the process; and Wait waits for the end.
func TestHideWaits(t *testing.T) {
	table := NewTable()
	column := NewColumn[*bool](table)
	e := table.Add(id(1, 1))
	over := new(bool)
	column.Set(e, over)
	e.Show()
	within, goOn := make(chan struct{}, 2), make(chan struct{})
	var using sync.WaitGroup
	use := func(value *bool) {
		within <- struct{}{}
		<-goOn
		assert.Check(t, value != nil && !*value, "the process is hidden within View or Each")
	}
	using.Go(func() { column.View(func(find func(int) *bool) { use(find(1)) }) })
	using.Go(func() { column.Each(use) })
	<-within
	<-within
	hidden := make(chan struct{})
	go func() {
		e.Hide()
		*over = true
		close(hidden)
	}()
	close(goOn)
	using.Wait()
	<-hidden
	ended := make(chan struct{})
	e.OnEnd(func() { <-ended })
	go e.End()
	waited := make(chan struct{})
	go func() { table.Wait(); close(waited) }()
	select {
	case <-waited:
		t.Error("Wait does not wait for the end")
	default:
	}
	close(ended)
	<-waited
}
