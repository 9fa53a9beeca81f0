package keep

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
	"unicode/utf8"

	"correlator/profile"
)

const (
	// answerBytes is the most that an answer is as JSON: some 20,000 different combinations of span,
	// thread and stack. A page or a table shows far less, and with it the default of --keep has room in
	// the unit's GOMEMLIMIT beside an exporter.
	answerBytes = 2 << 20

	// answerMemory is the most that is allocated for an answer until it is sent, garbage included: what is
	// counted, the answer, and its text, in a buffer that doubles (TestSoakMemoryOfAnswer).
	answerMemory = 16 * answerBytes

	// What parts of an answer are as JSON, without their texts.
	sampleText      = 64
	spanText        = 24
	frameText       = 80
	stackFrameText  = 8
	fileText        = 120
	processText     = 160
	transactionText = 424  // with a Sample of what is left out of it
	accountText     = 1400 // with large numbers for each state
	intervalText    = 100
	attributeText   = 6
	waitText        = 232 // with large numbers
	wakerText       = 180
	escapedBytes    = 6 // of a character: \u0000

	// maxStackBytes is how full an answer may be of transactions and stacks: the rest is for threads and
	// spans.
	maxStackBytes = answerBytes / 4 * 3
)

// maxDelay is how much later than it was taken a sample is added at most: the longest samples-delay, twice.
const maxDelay = 2 * time.Minute

// collector collects the samples of transactions for an answer, in which all that they share is once. Most
// important is which stacks a transaction has: threads and spans are added as long as there is room.
type collector struct {
	store   *Store
	ctx     context.Context
	answer  *Answer
	bytes   int // of the answer as JSON
	number  map[*transaction]int
	ofStack sums[stackKey] // all samples but those of leftOut
	ofSpan  sums[entryKey] // those of ofStack again, as far as there is room
	leftOut []uint64       // samples of each transaction
	ofWait  sums[waitKey]  // ns
	waits   map[waitKey]lastTimes

	chance    *rand.Rand      // the same in each answer
	least     float64         // moments of no higher rank are left out
	ofSamples timed[entryKey] // which are the first ones of the answer
	ofWaits   timed[waitKey]

	processes map[*process]int
	files     map[*profile.File]int
	frames    map[*frame]uint32
	stacks    map[*stack]int
}

// lastTimes are times of waits, and when the last one ended.
type lastTimes struct {
	profile.StateTimes
	last int64
}

type stackKey struct {
	transaction *transaction
	stack       *stack
}

func newCollector(ctx context.Context, s *Store, a *Answer) *collector {
	return &collector{store: s, ctx: ctx, answer: a, number: make(map[*transaction]int),
		ofStack: newSums[stackKey](maxSums), ofSpan: newSums[entryKey](maxSums),
		ofWait: newSums[waitKey](maxWaitSums), waits: make(map[waitKey]lastTimes),
		chance: rand.New(rand.NewPCG(0, 0)), ofSamples: newTimed[entryKey](), ofWaits: newTimed[waitKey](),
		processes: make(map[*process]int), files: make(map[*profile.File]int),
		frames: make(map[*frame]uint32), stacks: make(map[*stack]int)}
}

func (c *collector) collect(selected []candidate) error {
	selected, copied, all := c.snapshot(selected)
	selected = c.addTransactions(selected, copied)
	for _, slice := range all {
		c.ofSamples.entries, c.ofWaits.entries = c.ofSamples.entries[:0], c.ofWaits.entries[:0]
		for some, err := range steps(c.ctx, c.store, func() []entry { return slice.entries }) {
			if err != nil {
				return err
			}
			c.count(slice.first, some)
		}
		for some, err := range steps(c.ctx, c.store, func() []waitEntry { return slice.waits }) {
			if err != nil {
				return err
			}
			c.countWaits(some)
		}
		for some, err := range steps(c.ctx, c.store, func() []moment { return slice.moments }) {
			if err != nil {
				return err
			}
			for _, m := range some {
				ranked := rankedMoment{m, m.made().Rank(c.chance.Float64())}
				c.ofSamples.add(ranked, c.least)
				c.ofWaits.add(ranked, c.least)
			}
			if c.ofSamples.held+c.ofWaits.held > 2*maxMoments {
				c.leaveOut()
			}
		}
	}
	c.leaveOut()
	if err := c.addStacks(); err != nil {
		return err
	}
	if err := c.addSpans(); err != nil {
		return err
	}
	c.addMoments()
	c.finish(selected)
	return nil
}

// changing is what may change of a transaction.
type changing struct {
	attributes profile.Attributes
	earlier    uint64
	account    *Account     // nil: there is none
	trace      *transaction // that has waits of it, too, as ofTrace; nil: none
}

// snapshot copies what may change of transactions, at most MaxTransactions, without those that have been
// forgotten since they were found, and returns the slices that may have samples of them. What is not in
// these slices, and was kept once, is counted as earlier.
func (c *collector) snapshot(found []candidate) (selected []candidate, copied []changing, all []sliceOfTime) {
	copied = make([]changing, 0, len(found))
	c.store.mu.Lock()
	selected = slices.DeleteFunc(found, func(tx candidate) bool { return tx.entries == 0 })
	for i := range selected {
		tx := selected[i].transaction
		made := changing{tx.attributes, tx.earlier, c.store.copyAccount(tx), tx.ofTrace()}
		if made.trace != nil && !made.trace.isOfOthers() {
			made.trace = nil
		}
		copied = append(copied, made)
	}
	all = slicesOf(selected)
	c.store.mu.Unlock()
	slices.SortStableFunc(all, func(a, b sliceOfTime) int { return cmp.Compare(a.began, b.began) })
	return selected, copied, all
}

// sliceOfTime is a slice with a copy of what may change.
type sliceOfTime struct {
	*timeSlice
	first int64
}

// slicesOf returns the slices that may have samples of transactions. The caller holds the lock; there are
// few slices, as each is large, or a tenth of the time (slicesOfPeriod, partOfLimit, maxSliceBytes).
func slicesOf(selected []candidate) (all []sliceOfTime) {
	type interval struct{ first, last int64 }
	owners := make(map[*owner]interval)
	for i := range selected {
		tx := &selected[i]
		in, known := owners[tx.process.owner]
		if !known {
			in = interval{tx.first, tx.last}
		}
		owners[tx.process.owner] = interval{min(in.first, tx.first), max(in.last, tx.last)}
	}
	for o, in := range owners {
		for _, slice := range slices.Concat(o.slow.slices, o.slices, o.waits.slices) {
			tooEarly := slice.ended != 0 && slice.ended < in.first-int64(maxDelay)
			if !tooEarly && slice.began <= in.last+int64(maxDelay) {
				all = append(all, sliceOfTime{slice, slice.first})
			}
		}
	}
	return all
}

// addTransactions adds the transactions that there is room for.
func (c *collector) addTransactions(selected []candidate, copied []changing) []candidate {
	for i := range selected {
		tx := selected[i].transaction
		size := transactionText
		if copied[i].account != nil {
			size += accountText
		}
		if selected[i].spanned != nil {
			size += intervalText
		}
		for key, value := range copied[i].attributes.All() {
			size += attributeText + textBytes(key) + textBytes(value)
		}
		if c.bytes+size > answerBytes/2 && i > 0 {
			c.answer.More += len(selected) - i
			selected = selected[:i]
			break
		}
		c.bytes += size
		c.number[tx] = i
		if trace := copied[i].trace; trace != nil {
			if _, known := c.number[trace]; !known { // those of a trace are with its first transaction
				c.number[trace] = i
			}
		}
		made := Transaction{Trace: tx.traceText(), ID: tx.text(), Process: c.process(tx.process),
			Context: tx.context.String(), Earlier: copied[i].earlier, Account: copied[i].account,
			Span: selected[i].spanned}
		for key, value := range copied[i].attributes.All() {
			if made.Attributes == nil {
				made.Attributes = make(map[string]string)
			}
			made.Attributes[key] = value
		}
		c.answer.Transactions = append(c.answer.Transactions, made)
	}
	c.leftOut = make([]uint64, len(selected))
	return selected
}

// count counts what is of the transactions, of a slice whose first sample was taken then.
func (c *collector) count(first int64, some []entry) {
	for i := range some {
		e := &some[i]
		number, selected := c.number[e.transaction]
		if !selected {
			c.ofSamples.want(entryKey{})
			continue
		}
		c.ofSamples.want(e.entryKey)
		tx := &c.answer.Transactions[number]
		tx.Samples += e.count
		if tx.KeptFrom.IsZero() {
			tx.KeptFrom = c.store.clock.Time(first)
		}
		c.ofSpan.add(e.entryKey, e.count, func(entryKey, uint64) {})
		c.ofStack.add(stackKey{e.transaction, e.stack}, e.count, func(of stackKey, samples uint64) {
			c.leftOut[c.number[of.transaction]] += samples
		})
	}
}

// countWaits counts what is of the transactions.
func (c *collector) countWaits(some []waitEntry) {
	for i := range some {
		e := &some[i]
		if _, selected := c.number[e.transaction]; !selected {
			c.ofWaits.want(waitKey{})
			continue
		}
		c.ofWaits.want(e.waitKey)
		of := c.waits[e.waitKey]
		of.Add(e.StateTimes)
		of.last = max(of.last, e.last)
		c.waits[e.waitKey] = of
		c.ofWait.add(e.waitKey, uint64(max(e.Sum, 0)), func(key waitKey, _ uint64) {
			c.answer.LeftOutWaits += c.waits[key].Count
			delete(c.waits, key)
		})
	}
}

// addStacks adds the stacks that there is room for, of samples and of waits in turn, with room for a Sample or a Wait
// of each; samples and waits of others are left out.
func (c *collector) addStacks() error {
	samples, waits := c.ofStack.sort(), c.ofWait.sort()
	for i := range max(len(samples), len(waits)) {
		if i%step == 0 {
			if err := c.ctx.Err(); err != nil {
				return err
			}
		}
		if i < len(samples) {
			one := &samples[i]
			if !c.addStack(one.key.stack, sampleText) {
				c.leftOut[c.number[one.key.transaction]] += one.samples
				delete(c.ofStack.all, one.key)
			}
		}
		if i < len(waits) {
			c.addWait(waits[i].key)
		}
	}
	return nil
}

// addWait adds waits, if there is room for them.
func (c *collector) addWait(key waitKey) {
	made := key.cause.wait()
	of := c.waits[key]
	made.Transaction, made.StateTimes, made.Last = c.number[key.transaction], of.StateTimes, c.store.clock.Time(of.last)
	made.TID, made.Thread = int(key.thread.tid), key.thread.name
	size := waitText + textBytes(made.Thread) + textBytes(made.Path)
	if key.span != [8]byte{} {
		made.Span = hexadecimal(key.span[:])
		size += spanText
	}
	if w := made.Waker; w != nil {
		size += wakerText + textBytes(w.Thread) + textBytes(w.Service)
	}
	if !c.addStack(key.stack, size) {
		c.answer.LeftOutWaits += made.Count
		return
	}
	made.Stack = c.stacks[key.stack]
	c.answer.Waits = append(c.answer.Waits, made)
	c.ofWaits.keys = append(c.ofWaits.keys, key)
}

// addSpans adds samples with thread and span as long as there is room. The rest of each stack is one Sample.
func (c *collector) addSpans() error {
	for some := range slices.Chunk(c.ofSpan.sort(), step) {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		for _, one := range some {
			c.addSpan(one)
		}
	}
	for _, rest := range c.ofStack.sorted {
		if n := c.ofStack.all[rest.key].samples; n > 0 {
			c.answer.Samples = append(c.answer.Samples, Sample{Transaction: c.number[rest.key.transaction],
				Stack: c.stacks[rest.key.stack], Several: true, Count: n})
		}
	}
	return nil
}

func (c *collector) addSpan(one counted[entryKey]) {
	of := stackKey{one.key.transaction, one.key.stack}
	rest := c.ofStack.all[of]
	samples := min(one.samples, rest.samples) // less if the stack was left out in between
	sample := Sample{Transaction: c.number[one.key.transaction], Stack: c.stacks[one.key.stack],
		TID: int(one.key.thread.tid), Thread: one.key.thread.name, Count: samples}
	size := sampleText + textBytes(sample.Thread)
	if one.key.span != [8]byte{} {
		sample.Span = hexadecimal(one.key.span[:])
		size += spanText
	}
	if samples == rest.samples {
		size -= sampleText // that of the rest
	}
	if samples == 0 || c.bytes+size > answerBytes {
		return
	}
	c.bytes += size
	rest.samples -= samples
	c.ofStack.all[of] = rest
	c.answer.Samples = append(c.answer.Samples, sample)
	c.ofSamples.keys = append(c.ofSamples.keys, one.key)
}

// finish adds samples that were left out, and when the first and the last ones were taken.
func (c *collector) finish(selected []candidate) {
	for i, samples := range c.leftOut {
		if samples > 0 {
			c.answer.LeftOut += samples
			c.answer.Samples = append(c.answer.Samples, Sample{Transaction: i, Stack: LeftOutStack, Count: samples})
		}
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for i, found := range selected {
		tx := &c.answer.Transactions[i]
		first, last := found.transaction.first, found.transaction.last
		if first > last {
			first, last = found.first, found.last
		}
		tx.First, tx.Last = c.store.clock.Time(first), c.store.clock.Time(last)
		if tx.Earlier == 0 || tx.KeptFrom.Before(tx.First) {
			tx.KeptFrom = tx.First
		}
	}
}

func (c *collector) process(p *process) int {
	i, known := c.processes[p]
	if !known {
		i = len(c.answer.Processes)
		c.processes[p] = i
		r := p.resource
		c.bytes += processText + textBytes(r.Name) + textBytes(r.Environment) + textBytes(r.ContainerID)
		c.answer.Processes = append(c.answer.Processes, Process{PID: r.PID, StartTime: r.Process.StartTime,
			Service: r.Name, Environment: r.Environment, ContainerID: r.ContainerID})
	}
	return i
}

// addStack adds a stack, unless it is there, if there is room for it and for more bytes.
func (c *collector) addStack(st *stack, more int) bool {
	if _, known := c.stacks[st]; known {
		if c.bytes+more > maxStackBytes {
			return false
		}
		c.bytes += more
		return true
	}
	functions := make([]*profile.Function, len(st.frames))
	c.store.mu.Lock()
	for i, f := range st.frames {
		functions[i] = f.function
	}
	c.store.mu.Unlock()
	made := make(map[*frame]Frame)
	size := more + stackFrameText*len(st.frames)
	for i, f := range st.frames {
		if _, known := c.frames[f]; known {
			continue
		}
		frame := Frame{Kind: f.Kind(), Address: f.Address, Line: f.Line}
		if function := cmp.Or(functions[i], f.Function); function != nil {
			frame.Function, frame.System, frame.Source = function.Name, function.SystemName, function.SourceFile
		}
		made[f] = frame
		size += frameText + textBytes(frame.Function) + textBytes(frame.System) + textBytes(frame.Source)
		if f.File != nil {
			size += fileText + textBytes(f.File.Path) + textBytes(f.File.BuildID)
		}
	}
	if c.bytes+size > maxStackBytes {
		return false
	}
	c.bytes += size
	frames := make([]uint32, len(st.frames))
	for i, f := range st.frames {
		frames[i] = c.frame(f, made[f])
	}
	c.stacks[st] = len(c.answer.Stacks)
	c.answer.Stacks = append(c.answer.Stacks, frames)
	return true
}

func (c *collector) frame(f *frame, made Frame) uint32 {
	if i, known := c.frames[f]; known {
		return i
	}
	if f.File != nil {
		file := c.file(f.File)
		made.File = &file
	}
	i := uint32(len(c.answer.Frames))
	c.frames[f] = i
	c.answer.Frames = append(c.answer.Frames, made)
	return i
}

func (c *collector) file(f *profile.File) int {
	i, known := c.files[f]
	if !known {
		i = len(c.answer.Files)
		c.files[f] = i
		c.answer.Files = append(c.answer.Files, File{ID: f.ID, Kind: f.Kind, BuildID: f.BuildID, Path: f.Path})
	}
	return i
}

// textBytes returns how long a text is at most in JSON, where what is no UTF-8 and what HTML or JavaScript
// could take for something else is escaped in six bytes.
func textBytes(text string) (n int) {
	for _, r := range text {
		switch {
		case r < ' ', r == '<', r == '>', r == '&', r == 0x7f, r == utf8.RuneError, r == 0x2028, r == 0x2029:
			n += escapedBytes
		case r == '"', r == '\\':
			n += 2
		default:
			n += utf8.RuneLen(r)
		}
	}
	return n
}
