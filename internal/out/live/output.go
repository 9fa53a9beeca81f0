package live

import (
	"correlator/dots/broker"
	"correlator/dots/schema"
	"correlator/internal/out/live/types"
)

// bus is where objects are published.
type bus interface {
	// Apply publishes changes, and sets the Err of each. An error says that none were published.
	Apply(changes []broker.Change) error
	// Wants reports whether somebody wants objects of a type. It does not wait.
	Wants(s *schema.Struct) bool
	// Selects reports whether somebody wants an object, or may want it. It does not wait.
	Selects(x broker.Instance) bool
}

func (e embedded) Selects(x broker.Instance) bool { return e.broker.Selects(x) }

// Selects is not known of a broker that runs elsewhere.
func (c connection) Selects(x broker.Instance) bool { return c.Wants(x.Descriptor()) }

func (c *local) selects(x broker.Instance) bool { return c.output.bus.Selects(x) }

func (r *remote) selects(x broker.Instance) bool {
	_, isTimeline := x.(*types.CorrelatorTransactionTimeline)
	return !isTimeline && r.output.bus.Selects(x)
}

// want says what is wanted.
type want uint32

const (
	wantHosts want = 1 << iota
	wantProcesses
	wantThreads
	wantTransactions
	wantStacks   // of transactions, which are needed for them
	wantWaits    // the same
	wantProfiles // stacks of processes
	wantTimelines

	numWants = 8

	wantCollected = wantStacks | wantWaits | wantTimelines
	wantOfSamples = wantProcesses | wantThreads | wantTransactions | wantCollected | wantProfiles
)

// wants are what types are made of, in the order of types.Published.
var wants = [...]want{wantHosts, wantProcesses, wantThreads, wantTransactions, wantStacks, wantStacks,
	wantWaits, wantProfiles, wantTimelines}

// wantedOn returns what is wanted on a bus.
func wantedOn(b bus) (w want) {
	for i, s := range types.Published() {
		if b.Wants(s) {
			w |= wants[i]
		}
	}
	return w
}

// snapshot is what is known at a time. It does not change any more.
type snapshot struct {
	hosts             []types.CorrelatorHost
	processes         []types.CorrelatorProcess
	threads           []types.CorrelatorThread
	transactions      []types.CorrelatorTransaction
	transactionStacks []types.CorrelatorTransactionStack
	stacks            []types.CorrelatorStack
	stackVersions     []uint64 // nil: not known
	waits             []types.CorrelatorTransactionWait
	processStacks     []types.CorrelatorProcessStack
	timelines         []types.CorrelatorTransactionTimeline
	waiting           map[int]float64 // threads of processes that wait in transactions; nil: that is not known
}

// output is a bus, and what is there. It belongs to one goroutine.
type output struct {
	bus     bus
	changes []broker.Change

	hosts        mirror[types.CorrelatorHost, types.CorrelatorHostKey, *types.CorrelatorHost]
	processes    mirror[types.CorrelatorProcess, types.CorrelatorProcessKey, *types.CorrelatorProcess]
	threads      mirror[types.CorrelatorThread, types.CorrelatorThreadKey, *types.CorrelatorThread]
	transactions mirror[types.CorrelatorTransaction, types.CorrelatorTransactionKey, *types.CorrelatorTransaction]
	stacks       mirror[types.CorrelatorStack, types.CorrelatorStackKey, *types.CorrelatorStack]
	shares       mirror[types.CorrelatorTransactionStack, types.CorrelatorTransactionStackKey,
		*types.CorrelatorTransactionStack]
	waits mirror[types.CorrelatorTransactionWait, types.CorrelatorTransactionWaitKey,
		*types.CorrelatorTransactionWait]
	profiles  mirror[types.CorrelatorProcessStack, types.CorrelatorProcessStackKey, *types.CorrelatorProcessStack]
	timelines mirror[types.CorrelatorTransactionTimeline, types.CorrelatorTransactionTimelineKey,
		*types.CorrelatorTransactionTimeline]
}

// sync makes the objects on the bus those of a snapshot that are wanted, and returns how many changes
// were refused, and one of the reasons.
func (o *output) sync(s *snapshot, w want) (refused int, err error) {
	c := o.changes[:0]
	c = o.hosts.diff(c, only(w&wantHosts, s.hosts))
	c = o.processes.diff(c, only(w&wantProcesses, s.processes))
	c = o.threads.diff(c, only(w&wantThreads, s.threads))
	c = o.transactions.diff(c, only(w&wantTransactions, s.transactions))
	o.stacks.versions = s.stackVersions
	c = o.stacks.diff(c, only(w&wantStacks, s.stacks)) // before their ids occur
	c = o.shares.diff(c, only(w&wantStacks, s.transactionStacks))
	c = o.waits.diff(c, only(w&wantWaits, s.waits))
	c = o.profiles.diff(c, only(w&wantProfiles, s.processStacks))
	c = o.timelines.diff(c, only(w&wantTimelines, s.timelines))
	if len(c) > 0 {
		if err := o.bus.Apply(c); err != nil {
			for i := range c {
				c[i].Err = err
			}
		}
	}
	o.hosts.settle(c)
	o.processes.settle(c)
	o.threads.settle(c)
	o.transactions.settle(c)
	o.stacks.settle(c)
	o.shares.settle(c)
	o.waits.settle(c)
	o.profiles.settle(c)
	o.timelines.settle(c)
	for i := range c {
		if c[i].Err != nil {
			refused, err = refused+1, c[i].Err
		}
	}
	clear(c)
	o.changes = c[:0]
	return refused, err
}

// only returns objects if they are wanted.
func only[T any](w want, objects []T) []T {
	if w == 0 {
		return nil
	}
	return objects
}
