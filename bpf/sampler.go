package bpf

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// MaxSamplesPerSecond limits the rate: at 2 µs for a sample of a target, 10,000 are 2 % of every
// CPU. More would measure the sampler itself; the kernel's own limit is ten times that.
const MaxSamplesPerSecond = 10_000

const (
	// defaultMaxTargets is far above the number of JVMs on one machine. An entry takes 240 bytes,
	// 980 KB in all.
	defaultMaxTargets = 4096

	// defaultMaxStacks is enough for the stacks of a machine's busy JVMs within stackIdle. An entry
	// takes 1.1 KB, 9 MB in all; with kernel stacks 2.1 KB and 17 MB.
	defaultMaxStacks = 8192

	// defaultMaxUnwound is a quarter of that, for six times the memory: 6.3 KB for an entry, 13 MB in
	// all, once there is an unwinder. Without those that are not sampled any more it is room for
	// what dozens of busy JVMs do.
	defaultMaxUnwound = 2048

	// minMaxCounts and maxMaxCounts bound the default size of each of the two tables of counts,
	// which is the samples of one second, all different. With shorter intervals between drains that
	// is more than enough. An entry takes 144 bytes: 2 × 9.5 MB at most.
	minMaxCounts = 1 << 10
	maxMaxCounts = 1 << 16

	// maxAttributes bounds the size of each of the two tables of attributes, which is MaxCounts below
	// that. Threads that are sampled between two drains work on few different things. An entry takes
	// 592 bytes: 1.2 MB for both.
	maxAttributes = 1 << 10

	// defaultDeferredBytes is room for 1,000 deferred samples with 20 frames.
	defaultDeferredBytes = 256 << 10
)

// SamplerOptions are what to sample, and the sizes of the kernel's tables. OpenSampler allocates
// their memory, which does not grow: below 13 MB by default on a small machine. The first
// [Sampler.SetUnwinder] allocates the table of MaxUnwound, 13 MB.
type SamplerOptions struct {
	SamplesPerSecond int  // of every CPU, at most MaxSamplesPerSecond; 0: only the table of targets
	KernelStacks     bool // include the kernel's frames in stacks
	KeepUnsampled    bool // also count samples of unsampled traces
	KeepUntraced     bool // also count NoSlot, NoTrace, NotValid and ZeroIDs, without ids
	ByThread         bool // count by thread, too
	BySpan           bool // count by span, too

	MaxTargets    int // below 65,536; 0: 4096
	MaxStacks     int // stacks of all targets, 0: 8192
	MaxUnwound    int // those that an unwinder has walked, 0: 2048
	MaxCounts     int // different counts between two drains, 0: the samples of a second
	DeferredBytes int // of the ring buffer, a power of 2 and a multiple of the page size; 0: 256 KiB

	// Labels are the keys of labels of goroutines that are read, at most MaxLabelKeys; none: no labels are. Of
	// LabelAttributes, those that are in Attributes are read, too.
	Labels     []LabelKey
	Attributes []string

	// OBI is the path of OBI's pinned map of contexts, such as [OBIContexts], which FollowOBI looks for; empty: none.
	OBI string

	freezes bool // as if ReadsInKernel said so

	// ChainOnly has stacks that are walked have what is in the chain of frame pointers alone, as where the
	// kernel's verifier refuses the rest.
	ChainOnly bool

	// PinDir, if set, is a directory in a bpf file system, which is created if it does not exist.
	// The table of targets is pinned there as "targets", for programs that include correlator.h. It
	// stays there: the next sampler with the same MaxTargets uses the same table, so that these
	// programs need no restart. Close empties the table; if the sampler was killed, the next one
	// does. A directory is for one sampler at a time.
	PinDir string
}

// withDefaults replaces zeros by defaults for a machine with that many CPUs.
func (o SamplerOptions) withDefaults(cpus int) SamplerOptions {
	setDefault(&o.MaxTargets, defaultMaxTargets)
	setDefault(&o.MaxStacks, defaultMaxStacks)
	setDefault(&o.MaxUnwound, defaultMaxUnwound)
	setDefault(&o.MaxCounts, min(max(roundUp(o.SamplesPerSecond*cpus), minMaxCounts), maxMaxCounts))
	setDefault(&o.DeferredBytes, defaultDeferredBytes)
	return o
}

func setDefault(n *int, value int) {
	if *n == 0 {
		*n = value
	}
}

// roundUp returns the next power of 2.
func roundUp(n int) int { return 1 << bits.Len(uint(n-1)) }

// Sampler samples every CPU, and counts in the kernel the samples of targets' threads that work on
// a trace. Methods are safe for concurrent use unless they say otherwise.
//
// Each tick of a CPU's clock is a sample with a KernelOutcome, or is Missed.
type Sampler struct {
	options    SamplerOptions
	seed       [2]uint64 // of the hashes of stacks
	identities *identities
	objects    samplingObjects
	chainOnly  error        // see ChainOnly
	pinDir     *pinDir      // nil without PinDir
	counters   *ebpf.Memory // a samplerCounters for each CPU
	clock      *clock
	deferred   *ringbuf.Reader
	table      targetTable
	obi        obi
	stopped    atomic.Bool // no sample is being taken any more

	draining sync.Mutex // held for drain and evictions
	drain    drain
	stacks   *stackTable
	retained retained

	labels labels

	unwinding sync.Mutex                 // held for SetUnwinder
	unwound   atomic.Pointer[stackTable] // of stacks that an unwinder has walked; nil before the first one
}

// samplingObjects are the programs, maps and variables of sampler.bpf.c without those that are only
// for an unwinder.
type samplingObjects struct {
	Sample     *ebpf.Program `ebpf:"sample"`
	WalkSample *ebpf.Program `ebpf:"walk_sample"`
	Unwinder   *ebpf.Map     `ebpf:"unwinder"`
	Targets    *ebpf.Map     `ebpf:"targets"`
	OBI        *ebpf.Map     `ebpf:"obi"`
	GoLayouts  *ebpf.Map     `ebpf:"go_layouts"`
	sharedMaps

	Active         *ebpf.Variable `ebpf:"active"`
	TargetFilter   *ebpf.Variable `ebpf:"target_filter"`
	UnwoundTargets *ebpf.Variable `ebpf:"unwound_targets"`
}

// sharedMaps are those that the last program of an unwinder uses, too.
type sharedMaps struct {
	Counters    *ebpf.Map `ebpf:"counters"`
	CountsA     *ebpf.Map `ebpf:"counts_a"`
	CountsB     *ebpf.Map `ebpf:"counts_b"`
	AttributesA *ebpf.Map `ebpf:"attributes_a"`
	AttributesB *ebpf.Map `ebpf:"attributes_b"`
	Events      *ebpf.Map `ebpf:"events"`
	Scratch     *ebpf.Map `ebpf:"scratch"`
	Stacks      *ebpf.Map `ebpf:"stacks"`
	Variables   *ebpf.Map `ebpf:".bss"`
	Constants   *ebpf.Map `ebpf:".rodata"`
}

func (o *samplingObjects) Close() error {
	return _SamplerClose(o.Sample, o.WalkSample, o.Unwinder, o.Targets, o.OBI, o.GoLayouts, o.Stacks, o.Counters,
		o.CountsA, o.CountsB, o.AttributesA, o.AttributesB, o.Events, o.Scratch, o.Variables, o.Constants)
}

// OpenSampler loads and starts the program; the caller must Close. It starts CPUs one after the
// other, which takes up to 100 ms. The error is a [MissingError] when the machine or the process
// lacks something.
func OpenSampler(options SamplerOptions) (*Sampler, error) {
	if rate := options.SamplesPerSecond; rate < 0 || rate > MaxSamplesPerSecond {
		return nil, fmt.Errorf("%d samples per second: not from 0 to %d", rate, MaxSamplesPerSecond)
	}
	if n := options.MaxTargets; n < 0 || n >= len(filterBits{})*64 { // see targetTable.nextID
		return nil, fmt.Errorf("%d targets: not from 0 to %d", n, len(filterBits{})*64-1)
	}
	s := &Sampler{options: options}
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sampler) open() (err error) {
	if s.identities, err = openIdentities(); err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("counting CPUs: %w", err)
	}
	s.options = s.options.withDefaults(cpus)
	if err := binary.Read(rand.Reader, binary.NativeEndian, &s.seed); err != nil {
		return err
	}
	spec, err := s.newSpec(cpus)
	if err == nil {
		s.obi.layout = spec.Maps[samplerMapObi].InnerMap
		err = s.load(spec)
	}
	if err != nil {
		return fmt.Errorf("loading sampler: %w", err)
	}
	if err := s.objects.Unwinder.Put(walker, s.objects.WalkSample); err != nil {
		return fmt.Errorf("chaining sampler: %w", err)
	}
	if err := s.table.open(&s.objects); err != nil {
		return err
	}
	s.stacks = newStackTable(s.objects.Stacks, &s.retained)
	if s.counters, err = s.objects.Counters.Memory(); err != nil {
		return fmt.Errorf("mapping counters: %w", err)
	}
	s.drain.tables = [2]*ebpf.Map{s.objects.CountsA, s.objects.CountsB}
	s.drain.attributes.tables = [2]*ebpf.Map{s.objects.AttributesA, s.objects.AttributesB}
	if s.deferred, err = ringbuf.NewReader(s.objects.Events); err != nil {
		return fmt.Errorf("opening ring buffer: %w", err)
	}
	s.clock, err = openClock(s.objects.Sample, s.options.SamplesPerSecond, s.takenOn)
	return err
}

// newSpec returns what is in the object, with constants and sizes of tables by the options.
func (s *Sampler) newSpec(cpus int) (*ebpf.CollectionSpec, error) {
	spec, err := shared.read(samplerObject)
	if err != nil {
		return nil, err
	}
	if err := s.setLabels(spec); err != nil {
		return nil, err
	}
	err = SetVariables(spec, map[string]any{
		samplerVarHashSeed:      s.seed,
		samplerVarReadsInKernel: ReadsInKernel() == nil && !s.options.freezes,
		samplerVarAddressMask:   addressMask(),
		samplerVarFindsCallers:  !s.options.ChainOnly,
		samplerVarKeepUnsampled: s.options.KeepUnsampled,
		samplerVarKeepUntraced:  s.options.KeepUntraced,
		samplerVarByThread:      s.options.ByThread,
		samplerVarBySpan:        s.options.BySpan,
		samplerVarKernelStacks:  s.options.KernelStacks,
	})
	if err != nil {
		return nil, err
	}
	spec.Maps[samplerMapTargets].MaxEntries = uint32(s.options.MaxTargets)
	spec.Maps[samplerMapStacks].MaxEntries = uint32(s.options.MaxStacks)
	spec.Maps[samplerMapStacks].ValueSize = userStackBytes
	if s.options.KernelStacks {
		spec.Maps[samplerMapStacks].ValueSize = kernelStackBytes
	}
	spec.Maps[samplerMapStacks].Value = nil // the type of a whole one
	spec.Maps[samplerMapUnwoundStacks].MaxEntries = uint32(s.options.MaxUnwound)
	spec.Maps[samplerMapCountsA].MaxEntries = uint32(s.options.MaxCounts)
	spec.Maps[samplerMapCountsB].MaxEntries = uint32(s.options.MaxCounts)
	spec.Maps[samplerMapAttributesA].MaxEntries = uint32(min(s.options.MaxCounts, maxAttributes))
	spec.Maps[samplerMapAttributesB].MaxEntries = uint32(min(s.options.MaxCounts, maxAttributes))
	spec.Maps[samplerMapCounters].MaxEntries = uint32(cpus)
	spec.Maps[samplerMapEvents].MaxEntries = uint32(s.options.DeferredBytes)
	return spec, nil
}

// ErrChainOnly: stacks that are walked have only what is in the chain of frame pointers.
var ErrChainOnly = errors.New("finds no callers outside of the chain of frame pointers")

// ChainOnly returns an [ErrChainOnly], with what the kernel's verifier said, if it has refused the part of the program
// that finds other callers, or the options say so.
func (s *Sampler) ChainOnly() error { return s.chainOnly }

// loadObjects loads the program, where the kernel's verifier refuses it without what finds callers that are not in
// the chain of frame pointers: that is two thirds of what it goes through.
func (s *Sampler) loadObjects(spec *ebpf.CollectionSpec, options ebpf.CollectionOptions) error {
	if s.options.ChainOnly {
		s.chainOnly = ErrChainOnly
	}
	err := load(spec, &s.objects, options)
	var refused *ebpf.VerifierError
	if s.options.ChainOnly || !errors.As(err, &refused) {
		return err
	}
	s.options.ChainOnly, s.chainOnly = true, fmt.Errorf("%w: %s", ErrChainOnly, err.Error())
	if err := spec.Variables[samplerVarFindsCallers].Set(false); err != nil {
		return err
	}
	return load(spec, &s.objects, options)
}

func (s *Sampler) load(spec *ebpf.CollectionSpec) (err error) {
	if s.options.PinDir == "" {
		return s.loadObjects(spec, ebpf.CollectionOptions{})
	}
	if s.pinDir, err = openPinDir(s.options.PinDir); err != nil {
		return err
	}
	options := ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: s.pinDir.Path("")}}
	spec.Maps[samplerMapTargets].Pinning = ebpf.PinByName
	err = s.loadObjects(spec, options)
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		// Of a sampler with another layout, or another MaxTargets.
		if err := s.pinDir.unpinTable(); err != nil {
			return err
		}
		err = s.loadObjects(spec, options)
	}
	if err != nil {
		return err
	}
	if err = s.pinDir.checkTable(); err != nil { // pinned meanwhile
		_ = s.objects.Close()
		s.objects = samplingObjects{}
	}
	return err
}

// Close stops sampling, empties the table of targets and frees everything else. A waiting
// [DeferredReader] returns. There must be no other calls during or after Close. Counts that were
// not drained are lost: call [Sampler.Stop] and Drain before.
func (s *Sampler) Close() error {
	var errs []error
	errs = append(errs, s.Stop())
	if s.deferred != nil {
		errs = append(errs, s.deferred.Close())
	}
	if s.objects.Targets != nil {
		errs = append(errs, s.table.clear(), s.objects.Close())
	}
	if unwound := s.unwound.Load(); unwound != nil {
		errs = append(errs, unwound.stacks.Close())
	}
	errs = append(errs, s.obi.close())
	if s.identities != nil {
		errs = append(errs, s.identities.close())
	}
	if s.pinDir != nil {
		s.pinDir.Close()
	}
	return errors.Join(errs...)
}

// Stop ends sampling. When it has returned, no sample is being taken.
func (s *Sampler) Stop() error {
	if s.clock == nil {
		return nil
	}
	err := s.clock.close()
	s.stopped.Store(true)
	return err
}

// Refresh starts sampling CPUs that came online, releases those that went offline, and updates
// Missed. Calling it every few seconds is cheap: it reads a short file, and 8 bytes per CPU.
func (s *Sampler) Refresh() error {
	return s.clock.refresh()
}

// Identify returns which program a process runs now, or [ErrGone].
func (s *Sampler) Identify(pid int) (ExecID, error) {
	return s.identities.identify(pid)
}
