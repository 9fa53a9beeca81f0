package watch

import (
	"context"
	"errors"
	"iter"
	"time"

	"correlator/dots/client"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/live/types"
)

// Bounds of what a broker can make us keep: an agent publishes some ten thousand objects, and
// stacks of some kilobytes each.
const (
	maxObjects     = 1 << 20
	maxObjectBytes = 512 << 20
)

// closeTimeout is how long the end may take when the broker does not respond.
const closeTimeout = time.Second

type (
	hostKey        = types.CorrelatorHostKey
	processKey     = types.CorrelatorProcessKey
	threadKey      = types.CorrelatorThreadKey
	transactionKey = types.CorrelatorTransactionKey
)

// bus is a connection to a broker, and what was published there.
type bus struct {
	client  *client.Client
	changed chan struct{} // has a token when something has changed

	hosts        *client.Subscription[types.CorrelatorHost, hostKey]
	processes    *client.Subscription[types.CorrelatorProcess, processKey]
	threads      *client.Subscription[types.CorrelatorThread, threadKey]
	transactions *client.Subscription[types.CorrelatorTransaction, transactionKey]

	// Stacks are subscribed to while those of a transaction are shown. nil: of none.
	chosen *transactionKey
	times  *client.Subscription[types.CorrelatorTransactionStack, types.CorrelatorTransactionStackKey]
	names  *client.Subscription[types.CorrelatorStack, types.CorrelatorStackKey]
}

// openBus connects, and returns when everything has arrived that is published.
func openBus(ctx context.Context, uri, secret string) (*bus, error) {
	b := &bus{changed: make(chan struct{}, 1), client: client.New(client.Options{
		Name: "correlator watch", Secret: secret, Objects: maxObjects, ObjectBytes: maxObjectBytes,
		CloseTimeout: closeTimeout,
	})}
	var errs [4]error
	b.hosts, errs[0] = client.Subscribe(b.client, notify[*types.CorrelatorHost](b))
	b.processes, errs[1] = client.Subscribe(b.client, notify[*types.CorrelatorProcess](b))
	b.threads, errs[2] = client.Subscribe(b.client, notify[*types.CorrelatorThread](b))
	b.transactions, errs[3] = client.Subscribe(b.client, notify[*types.CorrelatorTransaction](b))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if err := b.client.Connect(ctx, uri); err != nil {
		_ = b.client.Close()
		return nil, err
	}
	return b, nil
}

func (b *bus) close() { _ = b.client.Close() } // nothing was published that could be lost

// notify returns a handler that notes that something has changed.
func notify[O any](b *bus) func(*client.Event[O]) {
	return func(*client.Event[O]) {
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
}

// choose subscribes to the stacks of a transaction, in place of another one's; nil: of none.
func (b *bus) choose(of *transactionKey) error {
	if b.chosen == of || b.chosen != nil && of != nil && *b.chosen == *of {
		return nil
	}
	if b.chosen != nil {
		if err := errors.Join(b.times.Close(), b.names.Close()); err != nil {
			return err
		}
		b.chosen, b.times, b.names = nil, nil, nil
	}
	if of == nil {
		return nil
	}
	handler := notify[*types.CorrelatorTransactionStack](b)
	times, err := client.SubscribeFiltered(b.client, only(of), handler)
	if errors.Is(err, client.ErrUnsupported) {
		times, err = client.Subscribe(b.client, handler)
	}
	if err != nil {
		return err
	}
	names, err := client.Subscribe(b.client, notify[*types.CorrelatorStack](b))
	if err != nil {
		return errors.Join(err, times.Close())
	}
	b.chosen, b.times, b.names = of, times, names
	return nil
}

// only is a filter for the stacks of a transaction.
func only(of *transactionKey) *system.DotsFilter {
	const all = system.DotsPredicateKindAnd
	nodes := []system.DotsPredicateNode{{Kind: value.Some(all), Arity: value.Some[uint32](3)}}
	for tag, text := range []string{1: of.Host, 2: of.TraceID, 3: of.TransactionID} {
		if tag == 0 {
			continue
		}
		leaf := system.DotsPredicateLeaf{
			PropertyTag: value.Some(uint32(tag)), Op: value.Some(system.DotsCompareOpEq),
			Value: value.Some(system.DotsPredicateValue{StringValue: value.Some(text)}),
		}
		nodes = append(nodes, system.DotsPredicateNode{
			Kind: value.Some(system.DotsPredicateKindLeaf), Leaf: value.Some(leaf),
		})
	}
	return &system.DotsFilter{
		Predicate: value.Some(system.DotsPredicate{Nodes: value.Some(nodes)}),
	}
}

// stacks returns the stacks of the chosen transaction: their frames, the innermost first, and the
// CPU time that was used with them. A stack whose frames have not arrived has its id as the only
// one.
func (b *bus) stacks() iter.Seq2[[]string, time.Duration] {
	return func(yield func([]string, time.Duration) bool) {
		if b.chosen == nil {
			return
		}
		for key, x := range b.times.All() {
			if key.Host != b.chosen.Host || key.TraceID != b.chosen.TraceID ||
				key.TransactionID != b.chosen.TransactionID {
				continue
			}
			stack, ok := b.names.Get(types.CorrelatorStackKey{Host: key.Host, ID: key.StackID})
			frames := stack.Frames.Value()
			if !ok || len(frames) == 0 {
				frames = []string{"[" + key.StackID + "]"}
			}
			if !yield(frames, x.CPUTime.Value().Duration()) {
				return
			}
		}
	}
}

// snapshot returns what is published now.
func (b *bus) snapshot() *snapshot {
	return &snapshot{
		at: time.Now(), stacks: b.stacks(),
		hosts: collect(b.hosts), processes: collect(b.processes), threads: collect(b.threads),
		transactions: collect(b.transactions),
	}
}

// collect returns the objects of a container.
func collect[T any, K comparable](s *client.Subscription[T, K]) map[K]*T {
	objects := make(map[K]*T, s.Len())
	for key, x := range s.All() {
		objects[key] = &x
	}
	return objects
}

// snapshot is what is published at one time.
type snapshot struct {
	at           time.Time
	hosts        map[hostKey]*types.CorrelatorHost
	processes    map[processKey]*types.CorrelatorProcess
	threads      map[threadKey]*types.CorrelatorThread
	transactions map[transactionKey]*types.CorrelatorTransaction
	stacks       iter.Seq2[[]string, time.Duration] // of the chosen transaction
}
