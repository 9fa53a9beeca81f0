package main

import (
	"context"
	"encoding/hex"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/admin"
	"correlator/internal/out/live/types"
	"correlator/internal/stacks/sampling"
)

// viewer is a guest that has joined all types of the live view.
type viewer struct {
	hosts        *client.Subscription[types.CorrelatorHost, types.CorrelatorHostKey]
	processes    *client.Subscription[types.CorrelatorProcess, types.CorrelatorProcessKey]
	threads      *client.Subscription[types.CorrelatorThread, types.CorrelatorThreadKey]
	transactions *client.Subscription[types.CorrelatorTransaction, types.CorrelatorTransactionKey]
	times        *client.Subscription[types.CorrelatorTransactionStack, types.CorrelatorTransactionStackKey]
	stacks       *client.Subscription[types.CorrelatorStack, types.CorrelatorStackKey]
}

func join[T any, K comparable, P client.Object[T, K]](t *testing.T, c *client.Client) *client.Subscription[T, K] {
	t.Helper()
	s, err := client.Subscribe[P](c, nil)
	assert.NilError(t, err)
	return s
}

// view joins all types at a broker.
func view(t *testing.T, uri string) *viewer {
	t.Helper()
	c := client.New(client.Options{Name: "test"})
	v := &viewer{
		join[types.CorrelatorHost, types.CorrelatorHostKey, *types.CorrelatorHost](t, c),
		join[types.CorrelatorProcess, types.CorrelatorProcessKey, *types.CorrelatorProcess](t, c),
		join[types.CorrelatorThread, types.CorrelatorThreadKey, *types.CorrelatorThread](t, c),
		join[types.CorrelatorTransaction, types.CorrelatorTransactionKey, *types.CorrelatorTransaction](t, c),
		join[types.CorrelatorTransactionStack, types.CorrelatorTransactionStackKey,
			*types.CorrelatorTransactionStack](t, c),
		join[types.CorrelatorStack, types.CorrelatorStackKey, *types.CorrelatorStack](t, c),
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	assert.NilError(t, c.Connect(ctx, uri))
	t.Cleanup(func() { c.Close() })
	return v
}

func (v *viewer) process(p *demo.Process) (found types.CorrelatorProcess, ok bool) {
	for key, x := range v.processes.All() {
		if key.Pid == uint32(p.PID) {
			return x, true
		}
	}
	return found, false
}

// worksOn returns the thread that a transaction was begun on, if the view has it in that transaction.
func (v *viewer) worksOn(p *demo.Process, c demo.Context) (found types.CorrelatorThread, ok bool) {
	for key, x := range v.threads.All() {
		if key.Pid == uint32(p.PID) && key.Tid == uint32(c.Thread.TID) {
			return x, x.TraceID.Value() == hex.EncodeToString(c.TraceID[:]) &&
				x.TransactionID.Value() == hex.EncodeToString(c.TransactionID[:])
		}
	}
	return found, false
}

// names returns the functions of a transaction's stacks.
func (v *viewer) names(c demo.Context) (names []string) {
	for key := range v.times.All() {
		if key.TransactionID != hex.EncodeToString(c.TransactionID[:]) {
			continue
		}
		if x, ok := v.stacks.Get(types.CorrelatorStackKey{Host: key.Host, ID: key.StackID}); ok {
			names = append(names, x.Frames.Value()...)
		}
	}
	return names
}

// A guest alone turns on that it is accounted what threads do, and off: a thread that waits is shown with its waits,
// and a stack, as soon as they are over.
func TestLiveWaits(t *testing.T) {
	needSampler(t)
	socket, uri := filepath.Join(t.TempDir(), "admin"), "uds:"+filepath.Join(t.TempDir(), "live")
	p := demo.Start(t, demo.Options{Idle: 1, Manual: true})
	a := startRaced(t, nil, "--live-listen", uri, "--admin-socket", socket)
	a.registered(p.PID)
	waits := func() *sampling.WaitsStatus {
		status, err := admin.NewClient(socket).Status(t.Context())
		assert.NilError(t, err)
		return status.Waits
	}
	if status := waits(); !status.Stacks {
		testenv.Missing(t, status.Error+status.StacksError)
	}
	assert.Check(t, waits().Idle, "accounts are kept for nobody")
	c := client.New(client.Options{Name: "test"})
	threads := join[types.CorrelatorThread, types.CorrelatorThreadKey, *types.CorrelatorThread](t, c)
	did := join[types.CorrelatorTransactionWait, types.CorrelatorTransactionWaitKey,
		*types.CorrelatorTransactionWait](t, c)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	assert.NilError(t, c.Connect(ctx, uri))
	t.Cleanup(func() { c.Close() })
	begun, span := p.Begin(1), 0
	testenv.Poll(t, deadline, "a thread that waits, with a stack", func() bool {
		span++
		p.Span(1, span) // which it has waited for
		states, places := 0, 0
		for key := range did.All() {
			if key.TransactionID != hex.EncodeToString(begun.TransactionID[:]) || key.State != "futex" {
				continue
			}
			if key.Place == "" {
				states++
			} else if key.Place != "[no stack]" {
				places++
			}
		}
		return threads.Len() > 0 && states == 1 && places > 0
	})
	assert.Check(t, !waits().Idle)
	assert.NilError(t, did.Close())
	testenv.Poll(t, deadline, "the end of accounts", func() bool { return waits().Idle })
}

// What the agent knows of real processes is on the bus: by its own broker, and by another one, which
// removes it when the agent is killed.
func TestLiveView(t *testing.T) {
	needSampler(t)
	own, other := "uds:"+filepath.Join(t.TempDir(), "own"), "uds:"+filepath.Join(t.TempDir(), "other")
	b := broker.New(broker.Options{})
	t.Cleanup(func() { _ = b.Shutdown(t.Context()) })
	_, err := b.ListenURI(other)
	assert.NilError(t, err)
	p := demo.Start(t, demo.Options{Busy: 1, Idle: 1, Manual: true, Service: "checkout"})
	a := startRaced(t, nil, "--samples-per-second", "97", "--live-listen", own, "--live-connect", other)
	a.registered(p.PID)
	v, w := view(t, own), view(t, other)
	busy, idle := p.Begin(1), p.Begin(2)

	for _, view := range []*viewer{v, w} {
		poll := func(what string, done func() bool) {
			t.Helper()
			testenv.Poll(t, deadline, what, done)
		}
		poll("the host", func() bool { return view.hosts.Len() == 1 })
		poll("the process", func() bool {
			x, ok := view.process(p)
			return ok && x.Service.Value() == "checkout" && x.State.Value() == "registered" && x.CPU.Value() > 0
		})
		poll("the thread that runs", func() bool {
			x, ok := view.worksOn(p, busy)
			return ok && x.CPU.Value() > 0 && x.Since.IsSet() && x.LastRun.IsSet()
		})
		poll("the thread that waits", func() bool {
			x, ok := view.worksOn(p, idle)
			return ok && x.CPU.Value() == 0 && x.Since.IsSet()
		})
		poll("the transaction", func() bool {
			for key, x := range view.transactions.All() {
				if key.TransactionID == hex.EncodeToString(busy.TransactionID[:]) {
					return x.CPUTime.Value() > 0 && x.Service.Value() == "checkout"
				}
			}
			return false
		})
	}
	testenv.Poll(t, deadline, "named stacks of the transaction", func() bool {
		return strings.Contains(strings.Join(v.names(busy), " "), busy.Kind)
	})

	p.End(2)
	testenv.Poll(t, deadline, "the end of the transaction that waits", func() bool {
		_, ok := v.worksOn(p, idle)
		return !ok
	})
	p.Kill()
	testenv.Poll(t, deadline, "the end of the process", func() bool {
		_, ok := v.process(p)
		return !ok
	})
	a.kill(syscall.SIGKILL)
	testenv.Poll(t, deadline, "the end of the agent", func() bool {
		return w.hosts.Len() == 0 && w.processes.Len() == 0
	})
}
