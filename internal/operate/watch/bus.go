package watch

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"correlator/dots/client"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/out/live/types"
)

// Bounds of what a broker can make us keep: an agent publishes some ten thousand objects, and
// stacks of some kilobytes each.
const (
	maxObjects     = 1 << 20
	maxObjectBytes = 512 << 20
)

const (
	// maxIDs is how many stacks one subscription is for: their ids fit into a frame that an agent takes,
	// of 64 KiB.
	maxIDs = 1000

	// maxNames is how many subscriptions to names are kept, of the 64 filtered ones that a guest may
	// have. Each is for the stacks that were new in one second, so what the oldest was for has had its
	// names for long.
	maxNames = 16
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
	names  []*nameSubscription // of those stacks, as they come
	waits  *client.Subscription[types.CorrelatorTransactionWait, types.CorrelatorTransactionWaitKey]
	all    bool                // the broker knows no filters: that is everybody's
	frames map[string][]string // by id of a stack that names were subscribed to; nil: they have not arrived
}

type nameSubscription = client.Subscription[types.CorrelatorStack, types.CorrelatorStackKey]

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
func (b *bus) choose(transaction *transactionKey) error {
	if b.chosen == transaction || b.chosen != nil && transaction != nil && *b.chosen == *transaction {
		return nil
	}
	if b.chosen != nil {
		err := errors.Join(b.times.Close(), b.waits.Close())
		for _, names := range b.names {
			err = errors.Join(err, names.Close())
		}
		b.chosen, b.times, b.waits, b.names = nil, nil, nil, nil
		if err != nil {
			return err
		}
	}
	if transaction == nil {
		return nil
	}
	times, err := subscribe(b, transaction, notify[*types.CorrelatorTransactionStack](b))
	if err != nil {
		return err
	}
	waits, err := subscribe(b, transaction, notify[*types.CorrelatorTransactionWait](b))
	if err != nil {
		return errors.Join(err, times.Close())
	}
	b.chosen, b.times, b.waits, b.frames = transaction, times, waits, make(map[string][]string)
	if b.all {
		return b.subscribeNames(nil)
	}
	return nil
}

// subscribe subscribes to what is published of a transaction, or of all where the broker knows no filters.
func subscribe[O client.Object[T, K], T any, K comparable](b *bus, transaction *transactionKey,
	handler func(*client.Event[O]),
) (*client.Subscription[T, K], error) {
	s, err := client.SubscribeFiltered(b.client, only(transaction), handler)
	if b.all = errors.Is(err, client.ErrUnsupported); b.all {
		return client.Subscribe(b.client, handler)
	}
	return s, err
}

// subscribeNames subscribes to the names of stacks; nil: of all.
func (b *bus) subscribeNames(filter *system.DotsFilter) error {
	names, err := client.SubscribeFiltered(b.client, filter, notify[*types.CorrelatorStack](b))
	if err != nil {
		return err
	}
	b.names = append(b.names, names)
	if len(b.names) <= maxNames {
		return nil
	}
	err = b.names[0].Close()
	b.names = slices.Delete(b.names, 0, 1)
	return err
}

// meet subscribes to the names of stacks that have come since the last call, and takes over those that
// have arrived.
func (b *bus) meet() error {
	if b.chosen == nil {
		return nil
	}
	var ids []string
	for key := range b.times.All() {
		if _, met := b.frames[key.StackID]; !met && b.isChosen(&key) {
			b.frames[key.StackID] = nil
			ids = append(ids, key.StackID)
		}
	}
	for batch := range slices.Chunk(ids, maxIDs) {
		if b.all {
			break
		}
		if err := b.subscribeNames(anyOf(batch)); err != nil {
			return err
		}
	}
	for _, names := range b.names {
		for key, x := range names.All() {
			if _, met := b.frames[key.ID]; met && key.Host == b.chosen.Host {
				b.frames[key.ID] = x.Frames.Value()
			}
		}
	}
	return nil
}

func (b *bus) isChosen(key *types.CorrelatorTransactionStackKey) bool {
	return key.Host == b.chosen.Host && key.TraceID == b.chosen.TraceID &&
		key.TransactionID == b.chosen.TransactionID
}

// only is a filter for the stacks of a transaction.
func only(transaction *transactionKey) *system.DotsFilter {
	nodes := []system.DotsPredicateNode{
		{Kind: value.Some(system.DotsPredicateKindAnd), Arity: value.Some[uint32](3)},
	}
	for i, text := range []string{transaction.Host, transaction.TraceID, transaction.TransactionID} {
		nodes = append(nodes, compare(uint32(i+1), system.DotsCompareOpEq,
			system.DotsPredicateValue{StringValue: value.Some(text)}))
	}
	return filter(nodes...)
}

// anyOf is a filter for stacks by their ids.
func anyOf(ids []string) *system.DotsFilter {
	const idTag = 2
	return filter(compare(idTag, system.DotsCompareOpIsIn, system.DotsPredicateValue{StringValues: value.Some(ids)}))
}

func compare(tag uint32, op system.DotsCompareOp, v system.DotsPredicateValue) system.DotsPredicateNode {
	leaf := system.DotsPredicateLeaf{PropertyTag: value.Some(tag), Op: value.Some(op), Value: value.Some(v)}
	return system.DotsPredicateNode{Kind: value.Some(system.DotsPredicateKindLeaf), Leaf: value.Some(leaf)}
}

func filter(nodes ...system.DotsPredicateNode) *system.DotsFilter {
	return &system.DotsFilter{Predicate: value.Some(system.DotsPredicate{Nodes: value.Some(nodes)})}
}

// stacks returns the stacks of the chosen transaction: their frames, the innermost first, and the
// CPU time that was used with them. One whose names have not arrived has a single frame, "…".
func (b *bus) stacks() iter.Seq2[[]string, time.Duration] {
	return func(yield func([]string, time.Duration) bool) {
		if b.chosen == nil {
			return
		}
		for key, x := range b.times.All() {
			if !b.isChosen(&key) {
				continue
			}
			frames := b.frames[key.StackID]
			if len(frames) == 0 {
				frames = []string{"…"}
			}
			if !yield(frames, x.CPUTime.Value().Duration()) {
				return
			}
		}
	}
}

// doings returns what the threads of the chosen transaction did.
func (b *bus) doings() (all []types.CorrelatorTransactionWait) {
	if b.chosen == nil {
		return nil
	}
	for key, x := range b.waits.All() {
		if (transactionKey{Host: key.Host, TraceID: key.TraceID, TransactionID: key.TransactionID}) == *b.chosen {
			all = append(all, x)
		}
	}
	return all
}

// snapshot returns what is published now.
func (b *bus) snapshot() *snapshot {
	return &snapshot{
		at: time.Now(), stacks: b.stacks(), waits: b.doings(),
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
	waits        []types.CorrelatorTransactionWait  // the same
}
