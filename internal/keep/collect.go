package keep

import (
	"cmp"
	"context"
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
	// counted, the answer, and its text, in a buffer that doubles (TestMemoryOfAnswer).
	answerMemory = 16 * answerBytes

	// What parts of an answer are as JSON, without their texts.
	sampleText      = 64
	spanText        = 24
	frameText       = 80
	stackFrameText  = 8
	fileText        = 120
	processText     = 160
	transactionText = 424 // with a Sample of what is left out of it
	attributeText   = 6
	escapedBytes    = 6 // of a character: \u0000

	maxCounts = answerBytes / sampleText
)

// maxDelay is how much later than it was taken a sample is added at most: the longest samples-delay, twice.
const maxDelay = 2 * time.Minute

// collector collects the samples of transactions for an answer, in which all that they share is once.
type collector struct {
	store   *Store
	ctx     context.Context
	answer  *Answer
	bytes   int // of the answer as JSON
	number  map[*transaction]int
	counts  map[entryKey]sum // at most maxCounts
	added   int              // to counts
	sorted  []counted        // of sort
	leftOut []uint64         // samples of each transaction

	processes map[*process]int
	files     map[*profile.File]int
	frames    map[*frame]uint32
	stacks    map[*stack]int
}

// sum is how many samples there are of an entryKey. A key without a thread is of all threads and spans for
// which there is no room.
type sum struct {
	samples uint64
	order   int // in which keys came
}

type counted struct {
	key entryKey
	sum
}

func newCollector(ctx context.Context, s *Store, a *Answer) *collector {
	return &collector{store: s, ctx: ctx, answer: a, number: make(map[*transaction]int),
		counts: make(map[entryKey]sum), processes: make(map[*process]int), files: make(map[*profile.File]int),
		frames: make(map[*frame]uint32), stacks: make(map[*stack]int)}
}

func (c *collector) collect(selected []candidate) error {
	selected, copied, all := c.snapshot(selected)
	selected = c.addTransactions(selected, copied)
	for _, slice := range all {
		for some, err := range c.store.entries(c.ctx, slice.timeSlice) {
			if err != nil {
				return err
			}
			c.count(slice.first, some)
		}
	}
	c.sort()
	c.answer.Samples = make([]Sample, 0, len(c.sorted)+len(selected))
	for some := range slices.Chunk(c.sorted, step) {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.addSamples(some)
	}
	c.finish(selected)
	return nil
}

// changing is what may change of a transaction.
type changing struct {
	attributes profile.Attributes
	earlier    uint64
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
		copied = append(copied, changing{tx.attributes, tx.earlier})
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
		for _, slice := range o.slices {
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
		made := Transaction{Trace: tx.traceText(), ID: tx.text(), Process: c.process(tx.process),
			Context: tx.context.String(), Earlier: copied[i].earlier}
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
			continue
		}
		tx := &c.answer.Transactions[number]
		tx.Samples += uint64(e.count)
		if tx.KeptFrom.IsZero() {
			tx.KeptFrom = time.Unix(0, first)
		}
		if c.add(e.entryKey, uint64(e.count)); len(c.counts) >= maxCounts {
			c.merge()
		}
	}
}

func (c *collector) add(key entryKey, samples uint64) {
	s, known := c.counts[key]
	if !known {
		c.added++
		s.order = c.added
	}
	s.samples += samples
	c.counts[key] = s
}

// sort sorts what was counted, the most samples first.
func (c *collector) sort() {
	c.sorted = slices.Grow(c.sorted[:0], len(c.counts))
	for key, s := range c.counts {
		c.sorted = append(c.sorted, counted{key, s})
	}
	slices.SortFunc(c.sorted, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.order, b.order))
	})
}

// merge makes room for what comes: of what has fewest samples, threads and spans are left out, and in the
// end stacks, too. What has many samples later may have lost a few.
func (c *collector) merge() {
	for len(c.counts) > maxCounts/2 {
		c.sort()
		for _, least := range c.sorted[len(c.sorted)/2:] {
			delete(c.counts, least.key)
			if least.key.thread == nil {
				c.leftOut[c.number[least.key.transaction]] += least.samples
			} else {
				c.add(entryKey{transaction: least.key.transaction, stack: least.key.stack}, least.samples)
			}
		}
	}
}

// addSamples adds samples that there is room for.
func (c *collector) addSamples(some []counted) {
	for _, one := range some {
		number := c.number[one.key.transaction]
		sample := Sample{Transaction: number, Count: one.samples}
		size := sampleText
		if th := one.key.thread; th == nil {
			sample.Several = true
		} else {
			sample.TID, sample.Thread = int(th.tid), th.name
			size += textBytes(sample.Thread)
		}
		if one.key.span != [8]byte{} {
			sample.Span = hexadecimal(one.key.span[:])
			size += spanText
		}
		var fits bool
		if sample.Stack, fits = c.stack(one.key.stack, size); !fits {
			c.leftOut[number] += sample.Count
			continue
		}
		c.answer.Samples = append(c.answer.Samples, sample)
	}
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
		tx.First, tx.Last = time.Unix(0, found.transaction.first), time.Unix(0, found.transaction.last)
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

// stack returns the place of a stack, and whether there is room for it and for more bytes.
func (c *collector) stack(st *stack, more int) (place int, fits bool) {
	if i, known := c.stacks[st]; known {
		c.bytes += more
		return i, c.bytes <= answerBytes
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
			frame.Function, frame.Source = function.Name, function.SourceFile
		}
		made[f] = frame
		size += frameText + textBytes(frame.Function) + textBytes(frame.Source)
		if f.File != nil {
			size += fileText + textBytes(f.File.Path) + textBytes(f.File.BuildID)
		}
	}
	if c.bytes+size > answerBytes {
		return 0, false
	}
	c.bytes += size
	frames := make([]uint32, len(st.frames))
	for i, f := range st.frames {
		frames[i] = c.frame(f, made[f])
	}
	place = len(c.answer.Stacks)
	c.stacks[st] = place
	c.answer.Stacks = append(c.answer.Stacks, frames)
	return place, true
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
