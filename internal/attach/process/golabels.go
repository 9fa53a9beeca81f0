package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"time"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/host/share"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// This file is what a Go program says of its goroutines: labels of runtime/pprof.

// GoLabels is the name of this source of contexts, in tables and JSON.
const GoLabels = "go_labels"

// goLayouts are the layouts of Go's runtime by minor version, the same on both architectures (structures g and m of
// runtime/runtime2.go, labelMap of runtime/pprof/label.go). What is not here is not read.
var goLayouts = map[string]bpf.GoLayout{
	"22": {GM: 48, GLabels: 344, MProcID: 72, MCurG: 192, MExtra: 282, Map: true},
	"23": {GM: 48, GLabels: 352, MProcID: 72, MCurG: 192, MExtra: 282, Map: true},
	"24": {GM: 48, GLabels: 352, MProcID: 72, MCurG: 192, MExtra: 282},
	"25": {GM: 48, GLabels: 344, MProcID: 64, MCurG: 184, MExtra: 274},
	"26": {GM: 48, GLabels: 352, MProcID: 64, MCurG: 184, MExtra: 282},
}

// goRelease matches versions that were released, with names of experiments or patches behind them.
var goRelease = regexp.MustCompile(`^go1\.(\d\d)(\.\d+([ +-].*)?| .*)?$`)

// layoutOf returns the layout of a version without the place of g.
func layoutOf(version string) (bpf.GoLayout, bool) {
	match := goRelease.FindStringSubmatch(version)
	if match == nil {
		return bpf.GoLayout{}, false
	}
	layout, ok := goLayouts[match[1]]
	return layout, ok
}

var (
	errGoVersion  = fmt.Errorf("layout of labels is not known: %w", tlsdesc.ErrUnsupported)
	errNoGoThread = fmt.Errorf("no thread has a goroutine (yet): %w", tlsdesc.ErrUnresolved)
)

// goLabels is what is known of the labels of the program that runs.
type goLabels struct {
	looked bool          // at the program
	tried  time.Time     // when that, or finding g, was last tried
	pause  time.Duration // after that, if it was in vain
	isGo   bool          // the program is one of Go, so far as known
	can    bool          // it can set labels, by a layout that is known
	local  bool          // it has thread-local variables
	layout bpf.GoLayout
	err    error // why layout is not valid; nil: it is, or there are none
}

// wantsLabels reports whether labels are of use: the process says that they have its contexts, or takes part anyway.
func (t *Target) wantsLabels() bool {
	return t.filter.All || t.HasContext() && t.ThreadSchema() == SchemaGoLabels
}

// HasLabels reports whether goroutines of the process can have labels that are read, so far as known.
func (t *Target) HasLabels() bool { return t.labels.can && t.wantsLabels() }

// IsGo reports whether the process runs a program in Go, if labels of such are wanted, so far as known.
func (t *Target) IsGo() bool { return t.labels.isGo }

// lookAtProgram finds out whether the program can set labels, once.
func (t *Target) lookAtProgram() {
	l := &t.labels
	if l.looked || !t.wantsLabels() || time.Since(l.tried) < resolveInterval {
		return
	}
	l.tried = time.Now()
	program, err := t.readGoProgram()
	if access.TellsNothing(err) || errors.Is(err, procscan.ErrGone) {
		return
	}
	*l = goLabels{looked: true, isGo: err == nil}
	if err != nil || !program.Labels { // errors are those of files that are no programs of Go
		return
	}
	l.local = program.ThreadLocals
	if l.layout, l.can = layoutOf(program.Version); !l.can {
		l.err = WithReason(ReasonTLS, fmt.Errorf("%q: %w", program.Version, errGoVersion))
		return
	}
	l.err = errNoGoThread
}

// readGoProgram reads what the file of the program says of Go.
func (t *Target) readGoProgram() (*elfsym.GoProgram, error) {
	image, err := t.handle.Image()
	if err != nil {
		return nil, err
	}
	mappings, err := t.handle.ExecutableMappings()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return nil, err
	}
	i := slices.IndexFunc(mappings, func(m procscan.Mapping) bool {
		return m.Start <= image.StartCode && image.StartCode < m.End
	})
	if i < 0 {
		return nil, elfsym.ErrNoSymbols
	}
	return t.access.GoProgram(mappings[i])
}

// LabelsError returns why labels cannot be read of a process that says that they have its contexts.
func (t *Target) LabelsError() error {
	if t.HasContext() && t.ThreadSchema() == SchemaGoLabels {
		return t.labels.err
	}
	return nil
}

// RefuseLabels has labels not be read while the process runs this program, for a reason that will not pass.
func (t *Target) RefuseLabels(reason error) {
	t.labels.can = false
	t.labels.err = WithReason(ReasonTLS, fmt.Errorf("labels: %w: %w", reason, tlsdesc.ErrUnsupported))
}

// labelsPause returns how long to wait before threads are looked at again; 0: that is known.
func (t *Target) labelsPause() time.Duration {
	if l := &t.labels; t.HasLabels() && errors.Is(l.err, tlsdesc.ErrUnresolved) && l.pause > 0 {
		return max(time.Until(l.tried.Add(l.pause)), searchMin)
	}
	return 0
}

// ResolveLabels finds where the threads of a Go program have the goroutine that they run, if it has labels and that is
// not known. It is a tlsdesc.ErrUnresolved as long as no thread runs any.
func (t *Target) ResolveLabels(threads *bpf.Threads) error {
	l := &t.labels
	if !t.HasLabels() || !errors.Is(l.err, tlsdesc.ErrUnresolved) || time.Since(l.tried) < l.pause {
		return l.err
	}
	l.tried, l.pause = time.Now(), share.Backoff{Min: searchMin, Max: searchMax}.Next(l.pause)
	found, err := threads.Process(t.handle.Identity().PID, nil)
	if err != nil {
		return WithReason(ReasonOther, err)
	}
	g := int64(0)
	if !l.inRegister(runtime.GOARCH) {
		if g, err = t.findG(l.layout, found); err != nil {
			return err
		}
	}
	l.layout.G, l.err, l.pause = g, nil, 0
	return nil
}

const (
	// goThreads is how many threads are looked at for a goroutine: the first of a program run one.
	goThreads = 16
	// gWords is how far from the thread pointer the pointer to a g may be: the variables of a program's libraries in
	// C are between.
	gWords = 64
	// gFirst is the first of these words on arm64, behind the thread control block.
	gFirst = 16
)

// inRegister reports whether threads have the pointer to a g in a register, also in code that is not Go: not what they
// look like says so, which may not have begun yet.
func (l *goLabels) inRegister(arch string) bool { return arch == "arm64" && !l.local }

// findG finds where threads have the pointer to the g that they run: what is there leads to the runtime's structure of
// the thread, which has the number of the thread, and is the same place in all of them.
func (t *Target) findG(layout bpf.GoLayout, threads []bpf.Thread) (int64, error) {
	var places map[int64]bool
	for _, thread := range threads[:min(len(threads), goThreads)] {
		if thread.ThreadPointer == 0 {
			continue
		}
		number, err := t.handle.ThreadNumber(thread.TID)
		if err != nil {
			continue // it has ended
		}
		found, err := t.placesOfG(layout, thread.ThreadPointer, uint64(number))
		if access.TellsNothing(err) {
			return 0, err
		}
		if len(found) == 0 { // a thread of C
			continue
		}
		if places == nil {
			places = found
		}
		for place := range places {
			if !found[place] {
				delete(places, place)
			}
		}
	}
	nearest := int64(0)
	for place := range places {
		if nearest == 0 || max(place, -place) < max(nearest, -nearest) {
			nearest = place
		}
	}
	if nearest == 0 {
		return 0, errNoGoThread
	}
	return nearest, nil
}

// placesOfG returns the places near a thread pointer where there is a pointer to a g of a thread with that number.
func (t *Target) placesOfG(layout bpf.GoLayout, threadPointer, number uint64) (map[int64]bool, error) {
	var words []byte
	var err error
	first := int64(0)
	for n := gWords; n > 0; n /= 8 { // there may be less memory
		words = make([]byte, n*8)
		if first = int64(-len(words)); runtime.GOARCH == "arm64" {
			first = gFirst
		}
		if _, err = t.memory.Read(threadPointer+uint64(first), words); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	places := make([]int64, len(words)/8)
	pointers := make([]uint64, len(words)/8)
	for i := range places {
		places[i], pointers[i] = first+int64(i*8), binary.NativeEndian.Uint64(words[i*8:])
	}
	follow := func(offset uint16) error {
		reads := make([]memread.Request, 0, len(pointers))
		for _, pointer := range pointers {
			reads = append(reads, memread.Request{Addr: pointer + uint64(offset), Buf: make([]byte, 8)})
		}
		err := t.memory.ReadBatch(reads)
		for i := range reads {
			if pointers[i] = 0; reads[i].Err == nil {
				pointers[i] = binary.NativeEndian.Uint64(reads[i].Buf)
			}
		}
		return err
	}
	if err := follow(layout.GM); err != nil {
		return nil, err
	}
	if err := follow(layout.MProcID); err != nil {
		return nil, err
	}
	found := make(map[int64]bool)
	for i, n := range pointers {
		if n == number {
			found[places[i]] = true
		}
	}
	return found, nil
}
