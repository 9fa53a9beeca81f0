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
	err = bpf.Permitted(func() (err error) {
		loaded, err = c.newRuntime(kind)
		return err
	})
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
	if err := checkDescriptors(); err != nil {
		return loaded, err
	}
	full, err := support.LoadCollectionSpec()
	if err != nil {
		return loaded, err
	}
	spec, err := selectFrom(full, []string{kind.program}, nil, c.findsAreas, 0)
	if err != nil {
		return loaded, err
	}
	if err := setVariables(spec, c.kernel, c.findsAreas); err != nil {
		return loaded, err
	}
	shared := make(map[string]*ebpf.Map)
	for name := range spec.Maps {
		if m := c.maps[name]; m != nil {
			shared[name] = m
		}
	}
	collection, err := bpf.NewCollection(spec, shared)
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

func (l loadedRuntime) close() {
	if l.program != nil {
		l.program.Close()
	}
	if l.table != nil {
		l.table.Close()
	}
}
