package unwind

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/support"

	"correlator/bpf"
)

// loadedRuntime is a runtimeKind's program and table.
type loadedRuntime struct {
	program *ebpf.Program
	table   *ebpf.Map
}

// loadRuntime loads a kind's program, which the others can call then, and its table, unless they are.
func (c *chain) loadRuntime(kind *runtimeKind) (loaded loadedRuntime, err error) {
	if loaded, ok := c.runtimes[kind]; ok {
		return loaded, nil
	}
	loaded, err = c.newRuntime(kind)
	time.AfterFunc(freeDelay, debug.FreeOSMemory) // as after loading the others
	if err != nil {
		return loaded, fmt.Errorf("loading the unwinding program for %s: %w", kind.name, err)
	}
	c.runtimes[kind] = loaded
	if c.waits != nil && c.noWaits == nil {
		c.noWaits = c.waits.loadRuntime(c, kind) // else that chain would end there: see Engine.NoWaits
	}
	if err := c.maps[programsMap].Put(kind.index, loaded.program); err != nil {
		delete(c.runtimes, kind)
		loaded.close()
		return loaded, fmt.Errorf("chaining the unwinding program for %s: %w", kind.name, err)
	}
	return loaded, nil
}

func (c *chain) newRuntime(kind *runtimeKind) (loaded loadedRuntime, err error) {
	collection, err := c.loadMore(nil, kind.program)
	if err != nil {
		return loaded, err
	}
	defer collection.Close()
	loaded = loadedRuntime{program: collection.DetachProgram(kind.program), table: collection.DetachMap(kind.table)}
	if loaded.program == nil || loaded.table == nil {
		loaded.close()
		return loadedRuntime{}, fmt.Errorf("%s does not use %s", kind.program, kind.table)
	}
	return loaded, nil
}

// loadMore loads further programs, changed by a function unless that is nil, with the tables that there are: in place
// of that of what programs call, those for waits have their own, or a new one.
func (c *chain) loadMore(forWaits func(*ebpf.ProgramSpec) error, programs ...string) (*ebpf.Collection, error) {
	if err := checkDescriptors(); err != nil {
		return nil, err
	}
	full, err := support.LoadCollectionSpec()
	if err != nil {
		return nil, err
	}
	spec, err := selectFrom(full, programs, nil, c.findsAreas, c.frames)
	if err != nil {
		return nil, err
	}
	if err := setVariables(spec, c.kernel, c.findsAreas); err != nil {
		return nil, err
	}
	shared := make(map[string]*ebpf.Map)
	for name := range spec.Maps {
		if m := c.maps[name]; m != nil {
			shared[name] = m
		}
	}
	if forWaits != nil {
		for _, p := range spec.Programs {
			if err := forWaits(p); err != nil {
				return nil, err
			}
		}
		delete(shared, programsMap)
		if c.waits != nil {
			shared[programsMap] = c.waits.next
		}
		for kind, loaded := range c.runtimes {
			if spec.Maps[kind.table] != nil {
				shared[kind.table] = loaded.table
			}
		}
	}
	var collection *ebpf.Collection
	err = bpf.Permitted(func() (err error) {
		collection, err = bpf.NewCollection(spec, shared)
		return err
	})
	return collection, err
}

func (l loadedRuntime) close() {
	if l.program != nil {
		l.program.Close()
	}
	if l.table != nil {
		l.table.Close()
	}
}
