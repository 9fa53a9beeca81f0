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

// subject is a transaction, or a process, whose stacks can be shown.
type subject struct {
	transactionKey        // of a process: the host alone
	pid            uint32 // of a process
}

func processSubject(key processKey) *subject {
	return &subject{transactionKey: transactionKey{Host: key.Host}, pid: key.Pid}
}

type bus struct {
	client  *client.Client
	changed chan struct{} // has a token when something has changed

	hosts        *client.Subscription[types.CorrelatorHost, hostKey]
	processes    *client.Subscription[types.CorrelatorProcess, processKey]
	threads      *client.Subscription[types.CorrelatorThread, threadKey]
	transactions *client.Subscription[types.CorrelatorTransaction, transactionKey]

	// Stacks are subscribed to while those of a transaction, or of a process, are shown. nil: of none.
	chosen *subject
	ofPID  *client.Subscription[types.CorrelatorProcessStack, types.CorrelatorProcessStackKey] // nil: of a transaction
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

// choose subscribes to the stacks of a transaction or process, in place of another one's; nil: of none.
func (b *bus) choose(of *subject) error {
	if b.chosen == of || b.chosen != nil && of != nil && *b.chosen == *of {
		return nil
	}
	if b.chosen != nil {
		err := b.closeChosen()
		b.chosen, b.ofPID, b.times, b.waits, b.names = nil, nil, nil, nil, nil
		if err != nil {
			return err
		}
	}
	if of == nil {
		return nil
	}
	if err := b.subscribeTo(of); err != nil {
		return err
	}
	b.chosen, b.frames = of, make(map[string][]string)
	if b.all {
		return b.subscribeNames(nil)
	}
	return nil
}

func (b *bus) closeChosen() (err error) {
	if b.ofPID != nil {
		err = b.ofPID.Close()
	} else {
		err = errors.Join(b.times.Close(), b.waits.Close())
	}
	for _, names := range b.names {
		err = errors.Join(err, names.Close())
	}
	return err
}

// subscribeTo subscribes to the stacks of a transaction, and what its threads do, or to those of a process.
func (b *bus) subscribeTo(of *subject) (err error) {
	if of.pid != 0 {
		b.ofPID, err = subscribe(b, of, notify[*types.CorrelatorProcessStack](b))
		return err
	}
	times, err := subscribe(b, of, notify[*types.CorrelatorTransactionStack](b))
	if err != nil {
		return err
	}
	waits, err := subscribe(b, of, notify[*types.CorrelatorTransactionWait](b))
	if err != nil {
		return errors.Join(err, times.Close())
	}
	b.times, b.waits = times, waits
	return nil
}

// subscribe subscribes to what is published of a subject, or of all where the broker knows no filters.
func subscribe[O client.Object[T, K], T any, K comparable](b *bus, of *subject,
	handler func(*client.Event[O]),
) (*client.Subscription[T, K], error) {
	s, err := client.SubscribeFiltered(b.client, only(of), handler)
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
	for id := range b.used() {
		if _, met := b.frames[id]; !met {
			b.frames[id] = nil
			ids = append(ids, id)
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

// used returns the ids of the stacks of what is chosen, and the CPU time that was used with each.
func (b *bus) used() iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		if b.ofPID != nil {
			for key, x := range b.ofPID.All() {
				isChosen := key.Host == b.chosen.Host && key.Pid == b.chosen.pid
				if isChosen && !yield(key.StackID, x.CPUTime.Value().Duration()) {
					return
				}
			}
			return
		}
		for key, x := range b.times.All() {
			of := transactionKey{Host: key.Host, TraceID: key.TraceID, TransactionID: key.TransactionID}
			if of == b.chosen.transactionKey && !yield(key.StackID, x.CPUTime.Value().Duration()) {
				return
			}
		}
	}
}

// only is a filter for the stacks of a subject.
func only(of *subject) *system.DotsFilter {
	texts := []string{of.Host, of.TraceID, of.TransactionID}
	if of.pid != 0 {
		texts = texts[:1]
	}
	var leaves []system.DotsPredicateNode
	for i, text := range texts {
		leaves = append(leaves, compare(uint32(i+1), system.DotsCompareOpEq,
			system.DotsPredicateValue{StringValue: value.Some(text)}))
	}
	if of.pid != 0 {
		const pidTag = 2
		leaves = append(leaves, compare(pidTag, system.DotsCompareOpEq,
			system.DotsPredicateValue{UintValue: value.Some(uint64(of.pid))}))
	}
	and := system.DotsPredicateNode{Kind: value.Some(system.DotsPredicateKindAnd),
		Arity: value.Some(uint32(len(leaves)))}
	return filter(append([]system.DotsPredicateNode{and}, leaves...)...)
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

// stacks returns the stacks of what is chosen: their frames, the innermost first, and the
// CPU time that was used with them. One whose names have not arrived has a single frame, "…".
func (b *bus) stacks() iter.Seq2[[]string, time.Duration] {
	return func(yield func([]string, time.Duration) bool) {
		if b.chosen == nil {
			return
		}
		for id, used := range b.used() {
			frames := b.frames[id]
			if len(frames) == 0 {
				frames = []string{"…"}
			}
			if !yield(frames, used) {
				return
			}
		}
	}
}

// doings returns what the threads of the chosen transaction did.
func (b *bus) doings() (all []types.CorrelatorTransactionWait) {
	if b.chosen == nil || b.waits == nil {
		return nil
	}
	for key, x := range b.waits.All() {
		of := transactionKey{Host: key.Host, TraceID: key.TraceID, TransactionID: key.TransactionID}
		if of == b.chosen.transactionKey {
			all = append(all, x)
		}
	}
	return all
}

func (b *bus) snapshot() *snapshot {
	return &snapshot{
		at: time.Now(), stacks: b.stacks(), waits: b.doings(),
		hosts: collect(b.hosts), processes: collect(b.processes), threads: collect(b.threads),
		transactions: collect(b.transactions),
	}
}

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
	stacks       iter.Seq2[[]string, time.Duration] // of what is chosen
	waits        []types.CorrelatorTransactionWait  // of the chosen transaction
}
