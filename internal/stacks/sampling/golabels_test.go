package sampling

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker/access/accesstest"
	"correlator/procscan"
	"correlator/profile"
	"correlator/tlsdesc"
)

// builtGoLabels is testdata/golabels in guests, where there is no Go: see internal/lab/kernels.
const builtGoLabels = "../../../testdata/out/golabels"

// buildGoLabels builds testdata/golabels, and returns it with the ranges of its functions burn0, burn1, …
func buildGoLabels(t *testing.T, cgo bool, environment []string, flags ...string) (program string, burn [4][2]uint64) {
	t.Helper()
	if _, err := os.Stat(builtGoLabels); err == nil && !cgo && len(flags) == 0 {
		return builtGoLabels, burners(t, builtGoLabels)
	}
	tool := testenv.NeedTool(t, "go")
	if cgo {
		testenv.NeedTool(t, "gcc")
		environment = append(environment, "CGO_ENABLED=1")
	} else {
		environment = append(environment, "CGO_ENABLED=0")
	}
	build := func(name string, flags ...string) string {
		program := filepath.Join(t.TempDir(), name)
		command := exec.Command(tool, append(append([]string{"build", "-o", program}, flags...), ".")...)
		command.Dir = filepath.Join("..", "..", "..", "testdata", "golabels")
		command.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false"), environment...)
		output, err := command.CombinedOutput()
		assert.NilError(t, err, "%s", output)
		return program
	}
	program = build("golabels", flags...)
	symbols := program
	if i := slices.Index(flags, "-ldflags=-s"); i >= 0 {
		symbols = build("symbols", slices.Delete(slices.Clone(flags), i, i+1)...)
	}
	return program, burners(t, symbols)
}

func burners(t *testing.T, program string) (burn [4][2]uint64) {
	t.Helper()
	file, err := elf.Open(program)
	assert.NilError(t, err)
	defer file.Close()
	table, err := file.Symbols()
	assert.NilError(t, err)
	for _, s := range table {
		var n int
		if _, err := fmt.Sscanf(s.Name, "main.burn%d", &n); err == nil && s.Name == fmt.Sprint("main.burn", n) {
			burn[n] = [2]uint64{s.Value, s.Value + s.Size}
		}
	}
	return burn
}

// goSink compares labels with functions.
type goSink struct {
	burn [4][2]uint64

	mu            sync.Mutex
	right, wrong  [4]uint64 // by function
	without, none uint64    // samples of functions with labels that have no trace; in none of the functions
	example       string

	slept, waits [4]time.Duration // by trace: in accounts, all and asleep
	stacks       [4]int           // of those
	others       []string         // accounts and waits of no trace, or of what goroutines without do
}

func (s *goSink) Sampled(sample profile.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Elsewhere the thread may be in the scheduler, with the goroutine before below it on the stack.
	leaf := sample.Stack.Frames[0].Address
	at := slices.IndexFunc(s.burn[:], func(f [2]uint64) bool { return f[0] <= leaf && leaf < f[1] })
	trace, span := hex.EncodeToString(sample.TraceID[:]), hex.EncodeToString(sample.SpanID[:])
	switch {
	case at < 0:
		s.none += sample.Count
	case at == 0 && sample.HasTrace(), sample.HasTrace() && (trace != fmt.Sprintf("%032d", at) ||
		span != fmt.Sprintf("%016d", at) || sample.Context != profile.OTelContext):
		s.wrong[at] += sample.Count
		s.example = fmt.Sprintf("in burn%d: trace %s, span %s", at, trace, span)
	case at > 0 && !sample.HasTrace():
		s.without += sample.Count
	default:
		s.right[at] += sample.Count
	}
}

// trace returns the number of one that the program has, 0 if it is none of them.
func (s *goSink) trace(id [16]byte, context profile.ContextKind, polled bool) int {
	n := int(id[15] & 15)
	if hex.EncodeToString(id[:]) == fmt.Sprintf("%032d", n) && 0 < n && n < len(s.burn) && !polled &&
		context == profile.OTelContext {
		return n
	}
	s.others = append(s.others, fmt.Sprintf("%x, %v", id, polled))
	return 0
}

func (s *goSink) Accounted(a *profile.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.trace(a.TraceID, a.Context, a.Times[profile.Poll].Count > 0)
	s.slept[n] += a.Times[profile.Sleep].Sum
	for _, of := range a.Times {
		s.waits[n] += of.Sum
	}
}

func (s *goSink) Waited(sample profile.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.trace(sample.TraceID, sample.Context, sample.Wait.State == profile.Poll)
	if sample.Wait.State == profile.Sleep && hex.EncodeToString(sample.SpanID[:]) == fmt.Sprintf("%016d", n) {
		s.stacks[n]++
	}
}

func (*goSink) Flush()                                {}
func (*goSink) Refused(process.SampleOutcome, uint64) {}

// findProcess finds a process that publishes nothing.
func findProcess(t *testing.T, pid int) procscan.Found {
	t.Helper()
	proc, err := procfs.NewProc(pid)
	assert.NilError(t, err)
	stat, err := proc.Stat()
	assert.NilError(t, err)
	return procscan.Found{ProcessID: procscan.ProcessID{PID: pid, StartTime: stat.Starttime}}
}

// sampleGoLabels samples the program until there are so many samples of each of its functions, none of which may be
// wrong, nor lack the labels that there are.
func sampleGoLabels(t *testing.T, program string, burn [4][2]uint64, rate int, samples uint64, lazy bool) {
	t.Helper()
	command := exec.Command(program)
	input, err := command.StdinPipe()
	assert.NilError(t, err)
	var slept bytes.Buffer
	command.Stdout = &slept
	assert.NilError(t, command.Start())
	defer command.Wait() //nolint:errcheck // it has ended, or the test has failed
	defer input.Close()
	found := findProcess(t, command.Process.Pid)
	target, err := process.Open(accesstest.Open(t), "/proc", found, process.Filter{All: true})
	assert.NilError(t, err)
	defer target.Close()
	s := openWith(t, Options{Waits: true, Lazy: lazy, SamplerOptions: bpf.SamplerOptions{SamplesPerSecond: rate,
		KeepUntraced: true, BySpan: true,
		Labels: []bpf.LabelKey{{Key: "trace_id", Role: bpf.TraceIDLabel}, {Key: "span_id", Role: bpf.SpanIDLabel}}}})
	sink := &goSink{burn: burn}
	sampler := NewProcessSampler(s.Sampling, target, func(bpf.ExecID) Sink { return sink }, new(atomic.Bool), time.Hour)
	assert.NilError(t, target.Load())
	s.poll("labels", func() bool { // the runtime begins
		_, err := target.Probe()
		assert.NilError(t, err)
		assert.NilError(t, sampler.Start())
		return target.Rules(nil).Labels != bpf.GoLayout{}
	})
	var view process.View
	target.Describe(&view)
	assert.Check(t, slices.Equal(view.Contexts, []string{process.GoLabels}), "%v", view.Contexts)
	s.poll("a sample with labels", func() bool { // with Lazy, the program is accounted since
		sampler.Serve()
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return slices.Max(sink.right[1:]) > 0 && !s.Waits().Idle
	})
	_, err = io.WriteString(input, "\n")
	assert.NilError(t, err)
	accounted := s.Waits().Kept
	s.poll("samples with labels", func() bool {
		sampler.Serve()
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return slices.Min(sink.right[:]) >= samples && (!accounted || slices.Min(sink.stacks[1:]) > 0) ||
			sink.wrong != [4]uint64{}
	})
	input.Close()
	assert.NilError(t, command.Wait())
	var least, most [len(sink.slept)]time.Duration
	for n := range least {
		_, err := fmt.Fscan(&slept, &least[n], &most[n])
		assert.NilError(t, err)
	}
	s.poll("accounts", func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		for n := range least {
			if accounted && sink.waits[n] < least[n] {
				return false
			}
		}
		return true
	})
	assert.NilError(t, sampler.Close()) // nothing comes any more
	for n, slept := range sink.slept {
		assert.Check(t, slept <= most[n], "trace %d has slept %v at most, by its account %v", n, most[n], slept)
	}
	assert.Check(t, len(sink.others) == 0, "%q", sink.others)
	t.Logf("%d samples are right; without labels %d, elsewhere %d, refused %d", sink.right, sink.without, sink.none,
		s.counters.LabelsRefused.Load())
	assert.Check(t, sink.wrong == [4]uint64{}, "%d: %s", sink.wrong, sink.example)
	assert.Check(t, sink.without == 0)
	// On arm64 a thread begins with the goroutine in its register of the thread that began it.
	assert.Check(t, s.counters.LabelsRefused.Load() == 0 || runtime.GOARCH == "arm64")
}

// Samples of goroutines that take turns have the labels of the goroutine that ran, and no others: whether threads have
// it at the place that Go has chosen, or the linker of C, with symbols or not.
func TestGoLabels(t *testing.T) {
	testenv.NeedRoot(t)
	for name, flags := range map[string][]string{
		"static": {}, "cgo, stripped": {"-ldflags=-s"},
	} {
		t.Run(name, func(t *testing.T) {
			program, burn := buildGoLabels(t, strings.HasPrefix(name, "cgo"), nil, flags...)
			sampleGoLabels(t, program, burn, 1000, 50, name == "static")
		})
	}
}

// Attributes of labels and of records have their own keys, whichever rules a program has had before, and records
// the key map of the first rules of records; labels alone do not have a program unwound before its first sample.
func TestRefineAttributes(t *testing.T) {
	s := openWith(t, Options{Lazy: true, SamplerOptions: bpf.SamplerOptions{
		Labels: []bpf.LabelKey{{Key: "trace_id", Role: bpf.TraceIDLabel}}}})
	command := exec.Command("sleep", "1000")
	assert.NilError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	identity, err := s.sampler.Identify(command.Process.Pid)
	assert.NilError(t, err)
	found := findProcess(t, command.Process.Pid)
	handle, err := procscan.OpenProcess("/proc", found.ProcessID)
	assert.NilError(t, err)
	defer handle.Close()
	memory := executableMemory{handle, accesstest.Open(t).Process(found.ProcessID, "0")}
	labels := bpf.TargetRules{Labels: bpf.GoLayout{G: -8, GM: 48}}
	records := bpf.TargetRules{OTel: tlsdesc.Rule{Kind: tlsdesc.Static, Offset: -64}, Keys: []uint8{1}, KnownKeys: 2}
	traced, err := s.Sampling.start(identity, records, nil, memory, new(goSink), newInbox(new(atomic.Bool), 0))
	assert.NilError(t, err)
	assert.Check(t, !traced.unseen.Load())
	assert.NilError(t, traced.stop())
	p, err := s.Sampling.start(identity, labels, nil, memory, new(goSink), newInbox(new(atomic.Bool), 0))
	assert.NilError(t, err)
	assert.Check(t, p.unseen.Load())
	defer func() { assert.NilError(t, p.stop()) }()

	attributes := func(ofLabels bool) (keys []string) {
		count := bpf.Count{OTel: true, OfLabels: ofLabels, TraceID: [16]byte{1}, Attributes: []byte("\x00\x10" +
			"00f067aa0ba902b7\x01\x01b")}
		sample := p.newSample(&count, instant{})
		for key := range sample.Attributes.All() {
			keys = append(keys, key)
		}
		assert.Check(t, sample.TransactionID == [8]byte{} == !ofLabels)
		return keys
	}
	ofLabels := []string{"datadog.local_root_span_id", "datadog.span_id"}
	assert.DeepEqual(t, attributes(true), ofLabels)
	assert.Check(t, len(attributes(false)) == 0)
	for _, keys := range [][]string{{"http.route", "http.verb"}, {"another", "map", "of keys"}} {
		assert.NilError(t, s.setTarget(p, records, keys))
		assert.DeepEqual(t, attributes(true), ofLabels)
		assert.DeepEqual(t, attributes(false), []string{"http.route", "http.verb"})
		records.Keys = []uint8{2}
		records.KnownKeys = 3
	}
	assert.Check(t, slices.Equal(p.rules.Keys, []uint8{1}) && p.rules.KnownKeys == 2, "%+v", p.rules)
}

// Labels of which no keys are to be read are not looked for again and again.
func TestLabelsUnwanted(t *testing.T) {
	testenv.NeedRoot(t)
	target, err := process.Open(accesstest.Open(t), "/proc", findProcess(t, os.Getpid()), process.Filter{All: true})
	assert.NilError(t, err)
	defer target.Close()
	assert.NilError(t, target.Load())
	_, err = target.Probe()
	assert.NilError(t, err)
	assert.Check(t, target.HasLabels(), "tests can set labels")
	assert.Check(t, target.IsPending())
	assert.NilError(t, new(Sampling).resolveLabels(target))
	assert.Check(t, !target.HasLabels() && !target.IsPending())
}
