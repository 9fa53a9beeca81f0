package unwind

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/log"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/processmanager"
	enginemaps "go.opentelemetry.io/ebpf-profiler/processmanager/ebpf"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/times"
	"golang.org/x/sys/unix"

	"correlator/internal/host/resident"
	"correlator/internal/names/symbols"
	"correlator/internal/stacks/unwind/deltas"
	"correlator/internal/worker"
	"correlator/procscan"
)

const (
	// workerMemoryBytes is what a worker may take. With one JVM it has 20 MB, while libjvm is read 45;
	// the largest executables have ten times as many functions.
	workerMemoryBytes = 256 << 20

	// A worker collects garbage when its heap has grown by startGCPercent until freeDelay after its start, by gcPercent
	// from then on.
	startGCPercent = 100
	gcPercent      = 50

	// workerDescriptors: processDescriptors for each process, and ownDescriptors. The limit may be lower.
	workerDescriptors = 12288

	// unloadDelay is how long what is known of a file is kept after the last process that mapped it.
	unloadDelay = time.Minute

	// framesTime is how long the frames of more stacks are looked for. Those of one take some 0.1 ms, some
	// milliseconds when none of its code is known yet.
	framesTime = 50 * time.Millisecond

	// maxNames is how many names are kept normalized.
	maxNames = 16384
)

// Kind is the kind of worker that serves an Engine. The capabilities are for reading the memory of
// processes, their files, and files that are unlinked.
func Kind() worker.Kind {
	return worker.Kind{
		Name:         "unwind",
		Capabilities: []int{unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_CHECKPOINT_RESTORE},
		Calls:        []uint32{unix.SYS_BPF},
		MemoryBytes:  workerMemoryBytes,
		Descriptors:  workerDescriptors,
		Raised:       true,
		Single:       true,
		Serve:        serve,
	}
}

func init() { worker.Early(Kind()) }

// server is the worker's side. All runs on one goroutine, but for what the engine cleans up.
type server struct {
	procRoot string
	conn     *worker.Conn
	tables   map[string]*ebpf.Map
	handler  *handler
	manager  *processmanager.ProcessManager
	provider provider
	deltas   *deltas.Provider // of provider
	budget   budget
	targets  map[libpf.PID]*target

	pages *pages            // of the request that is served
	names map[string]string // normalized
	// normalize is NormalizeName or NormalizeSignature.
	normalize func(string) string
	places    places
	keep      bool   // see Named, of the words that are named
	span      Span   // see Named, of the last of them
	opened    uint64 // targets
	trusted   uint64 // how often a runtime was found to be read right, see isTrusted
	opens     map[openedAs]struct{}
	mounts    symbols.Mounts
	cache     *fileCache // of a worker that probes processes
	attached  []*target  // of which something may be, see keepAttached; the last was named last
	log       engineLog
}

// provider returns how to unwind the code of files, or what the module itself says of that, in a third of the time,
// which is sufficient for stacks of our own.
type provider struct {
	nativeunwind.StackDeltaProvider
	plain   nativeunwind.StackDeltaProvider
	isPlain bool
	own     ownFile // which is known without reading it
	handler *handler
	// uncorrected counts files, see deltas.Provider.
	uncorrected *uint64
}

func (p *provider) GetIntervalDataForFile(ref *pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
	if p.isPlain {
		if own := p.own.intervals(ref); own != nil {
			return own, nil
		}
		return p.plain.GetIntervalDataForFile(ref)
	}
	data, err := p.StackDeltaProvider.GetIntervalDataForFile(ref)
	if err == nil { // the engine's next step is to look for runtimes in the file
		cold, isKnown := coldCode(ref, data)
		p.handler.setColdCode(cold)
		if !isKnown {
			*p.uncorrected++
		}
	}
	return data, err
}

func serve(procRoot string, conn *worker.Conn) {
	s := &server{
		procRoot: procRoot, conn: conn, tables: make(map[string]*ebpf.Map),
		targets: make(map[libpf.PID]*target), names: make(map[string]string), places: newPlaces(), pages: newPages(),
		cache: newFileCache(), opens: make(map[openedAs]struct{}),
	}
	log.SetLogger(*slog.New(&s.log))
	// While the first files are read, a fifth of the time would be for collecting garbage. To do so more seldom would
	// cost more: new memory takes a page fault for each 4 KB, of up to 30 us in a virtual machine.
	debug.SetGCPercent(startGCPercent)
	time.AfterFunc(freeDelay, func() { debug.SetGCPercent(gcPercent) })
	free := time.AfterFunc(freeDelay, func() { // reading a file takes more than all that is kept
		debug.FreeOSMemory()
		_ = resident.Trim(procRoot)
	})
	for {
		message, fds, err := conn.ReceiveDescriptors()
		if err != nil || len(message) == 0 {
			return
		}
		answer, err := s.answer(message, fds)
		if err != nil || conn.Send(answer, -1) != nil {
			return
		}
		if s.handler != nil && s.handler.takeFilesRead() {
			free.Reset(freeDelay)
		}
	}
}

// answer serves a request. An error ends the worker.
func (s *server) answer(message []byte, fds []int) ([]byte, error) {
	s.budget.reset()
	op := message[0]
	if op != opStart && op != opProbe && s.manager == nil {
		return nil, errAnswer
	}
	switch op {
	case opStart:
		return answerJSON(message, func(r *start) any { return started{Failure: failureText(s.start(*r, fds))} })
	case opSynchronize:
		return answerJSON(message, func(r *synchronize) any { return s.synchronize(r) })
	case opProbe:
		return answerJSON(message, func(r *synchronize) any { return s.probe(r) })
	case opRemove:
		var r remove
		if err := json.Unmarshal(message[1:], &r); err != nil {
			return nil, err
		}
		s.remove(libpf.PID(r.KernelPID))
		return []byte{op}, nil
	case opFrames:
		pid, stacks, err := decodeFramesRequest(message)
		if err != nil {
			return nil, err
		}
		return s.nameStacks(libpf.PID(pid), stacks), nil
	}
	return nil, fmt.Errorf("request %q: %w", op, errAnswer)
}

// answerJSON answers a request by what serves it.
func answerJSON[R any](message []byte, serve func(*R) any) ([]byte, error) {
	r, op := new(R), message[0] // which is overwritten by what is received while it is served
	if err := json.Unmarshal(message[1:], r); err != nil {
		return nil, err
	}
	return jsonMessage(op, serve(r))
}

func jsonMessage(op byte, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append([]byte{op}, b...), err
}

// failureText returns "" for nil.
func failureText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return text[:min(len(text), maxFailureBytes)]
}

// start sets up the engine with the tables that the agent has sent.
func (s *server) start(r start, fds []int) error {
	if s.manager != nil || len(r.Tables) != len(fds) {
		return errAnswer
	}
	for i, name := range r.Tables {
		table, err := ebpf.NewMapFromFD(fds[i])
		if err != nil {
			return fmt.Errorf("taking the table %s: %w", name, err)
		}
		s.tables[name] = table
	}
	if s.normalize = NormalizeName; r.Signatures {
		s.normalize = NormalizeSignature
	}
	jvms := s.tables[hotspotMap]
	if jvms == nil || s.tables[infosMap] == nil || s.tables[filesMap] == nil {
		return errAnswer
	}
	// Before Linux 5.19, kernel.unprivileged_bpf_disabled is about tables that a process has, too.
	value := make([]byte, jvms.ValueSize())
	if err := jvms.Lookup(uint32(0), value); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("accessing tables without CAP_BPF, for which kernel.unprivileged_bpf_disabled has to be 0 "+
			"before Linux 5.19: %w", err)
	}
	for bucket := support.StackDeltaBucketSmallest; bucket <= support.StackDeltaBucketLargest; bucket++ {
		s.tables[fmt.Sprintf(filesFormat, bucket)] = s.tables[filesMap] // of any size: see maxFiles
	}
	ctx := context.Background() // the worker ends with its process
	own, err := enginemaps.LoadMaps(ctx, tablesConfig(), s.tables, &ebpf.MapSpec{})
	if err != nil {
		return fmt.Errorf("setting up tables: %w", err)
	}
	var descriptors unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors); err != nil {
		return err
	}
	quotas := newQuotas(descriptors.Cur, func(table string) uint64 { return uint64(s.tables[table].MaxEntries()) })
	s.handler = newHandler(own, s.tables, quotas, s.newTable)
	s.handler.data.switchOn = s.switchOn
	s.deltas = deltas.NewProvider()
	s.provider = provider{
		StackDeltaProvider: s.deltas, plain: elfunwindinfo.NewStackDeltaProvider(), own: newOwnFile(s.procRoot),
		handler: s.handler, uncorrected: &s.deltas.Uncorrected,
	}
	s.manager, err = processmanager.New(ctx, processmanager.Config{
		InterpretersConfig:    runtimesConfig(),
		MonitorInterval:       time.Minute,
		ExecutableUnloadDelay: unloadDelay,
		EbpfHandler:           s.handler,
		StackDeltaProvider:    &s.provider,
	})
	if err != nil {
		return fmt.Errorf("setting up the engine: %w", err)
	}
	return nil
}

// newTable asks the agent for a table of 1<<bucket entries, and to fill it: the kernel would take a third of the time
// that reading libjvm takes to copy what it has, entry by entry, and a worker may map nothing that others read.
func (s *server) newTable(bucket uint16, deltas []ebpfapi.StackDeltaEBPF) (*ebpf.Map, error) {
	table, err := s.askTable(opTable, byte(bucket))
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(deltas, maxEntriesSent) {
		message := []byte{opEntries}
		for _, d := range some {
			message = binary.NativeEndian.AppendUint16(message, d.AddressLow)
			message = binary.NativeEndian.AppendUint16(message, d.UnwindInfo)
		}
		err := s.conn.Send(message, -1)
		if err == nil {
			_, err = s.conn.Receive()
		}
		if err != nil {
			table.Close()
			return nil, err
		}
	}
	return table, nil
}

// switchOn asks the agent for the table of a kind of runtime.
func (s *server) switchOn(kind *runtimeKind) (*ebpf.Map, error) {
	return s.askTable(opRuntime, byte(slices.Index(runtimeKinds, kind)))
}

func (s *server) askTable(op, which byte) (*ebpf.Map, error) {
	if err := s.conn.Send([]byte{op, which}, -1); err != nil {
		return nil, err
	}
	message, fds, err := s.conn.ReceiveDescriptors()
	if err != nil {
		return nil, err
	}
	if len(fds) != 1 || message[0] != op {
		return nil, errors.New("no more tables may be made")
	}
	return ebpf.NewMapFromFD(fds[0])
}

// errEngine: what is mapped is more than the engine can take.
var errEngine = errors.New("the unwinding engine failed at what the process has mapped")

func engineError(panicked any) error { return fmt.Errorf("%w: %v", errEngine, panicked) }

// synchronize reads the mappings of a process. If what reads its runtimes then panics, that is an error, too.
func (s *server) synchronize(r *synchronize) (result synchronized) {
	pid := libpf.PID(r.KernelPID)
	t := s.targets[pid]
	if t != nil && (t.handle.Identity() != r.ID || t.user != r.User) {
		s.remove(pid)
		t = nil
	}
	if t == nil {
		var err error
		if t, err = s.addTarget(r); err != nil {
			return failedSynchronization(err)
		}
	}
	t.begin()
	s.log.forget()
	s.handler.begin(t.user)
	defer func() {
		if t.isLocked {
			return
		}
		if wrong := recover(); wrong != nil {
			s.remove(pid)
			result = failedSynchronization(engineError(wrong))
		}
	}()
	s.provider.isPlain = t.user == selfUser
	if s.provider.isPlain && s.provider.own.root != 0 {
		t.own = s.provider.own.path
	}
	t.readByPages(s.pages, func() { s.manager.SynchronizeProcess(t) })
	t.skipRest(s.pages)
	if t.err == nil && (!t.handle.Alive() || errors.Is(t.failure, procscan.ErrGone)) {
		t.err = procscan.ErrGone
	}
	_ = s.handler.flush() // an error is in the result
	came := s.handler.result(pid)
	if err := cmp.Or(t.err, came.overQuota); err != nil {
		s.remove(pid)
		result = failedSynchronization(err)
		result.MapErrors, result.Full = came.errors, came.full
		return result
	}
	result = synchronized{
		Skipped: uint64(len(t.skipped)), MapErrors: came.errors, Full: came.full, Failure: failureText(came.failure),
		Uncorrected: s.deltas.Uncorrected,
	}
	s.deltas.Uncorrected = 0
	err := s.openRuntimes(t, &came)
	if err == nil {
		result.Refused, result.Unknown, err = s.refusals(t, &came)
		result.Unknown = join(result.Unknown, t.unreadText())
	}
	if err != nil {
		s.remove(pid) // the engine tries nothing again of what is mapped
		result.Outcome, result.Failure = outcomeNotReady, failureText(err)
		return result
	}
	ready := came.jvm
	if t.hasJVM && ready && t.code == nil {
		var err error
		if t.code, err = openJVMCode(t, s.pages); err != nil {
			t.code, ready, result.Failure = nil, false, failureText(err)
		}
	}
	switch {
	case t.hasJVM && ready:
	case t.hasJVM:
		result.Outcome = outcomeNotReady
		if result.Failure == "" {
			result.Failure = failureText(t.failure)
		}
	case came.failure != nil:
		result.Outcome = outcomeFailed
	}
	if result.Outcome == outcomeReady {
		result.Code = s.handler.sentCode(pid, host.FileIDFromLibpf(t.trampolinesID()))
	}
	return result
}

// openRuntimes prepares naming the frames of a process's runtimes. An error says which one cannot be unwound.
func (s *server) openRuntimes(t *target, came *stored) error {
	if came.missing != nil {
		return fmt.Errorf("%s: %w", came.missing.name, errNotAttached)
	}
	for _, kind := range came.runtimes {
		code, err := t.codes[kind], error(nil)
		if code != nil && kind.of != libpf.PHP { // of which the engine may have stored what it knows anew
			continue
		}
		if code == nil {
			code, err = findCode(t, kind, s.pages)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		switch kind.of {
		case libpf.V8:
			err = s.openV8(t, code)
		case libpf.Python:
			err = s.openPython(t)
		case libpf.PHP:
			err = s.openPHP(t, code)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		t.codes[kind] = code
	}
	return nil
}

var errNotAttached = errors.New("its state was not found")

// addTarget adds the process of a request.
func (s *server) addTarget(r *synchronize) (*target, error) {
	quota := s.handler.quotas.processes
	if err := quota.take(r.User, 1); err != nil {
		return nil, err
	}
	t, err := openTarget(s.procRoot, r, &s.budget, s.handler)
	if err != nil {
		quota.give(r.User, 1)
		return nil, err
	}
	t.opens, t.opener.Mounts = s.opens, &s.mounts
	s.opened++
	t.number = s.opened
	s.targets[libpf.PID(r.KernelPID)] = t
	return t, nil
}

// failedSynchronization is a result without mappings. A process that has none is exiting.
func failedSynchronization(err error) synchronized {
	if errors.Is(err, procscan.ErrGone) || errors.Is(err, process.ErrNoMappings) {
		return synchronized{Outcome: outcomeGone}
	}
	if errors.Is(err, errOverQuota) {
		return synchronized{Outcome: outcomeOverQuota, Failure: failureText(err)}
	}
	return synchronized{Outcome: outcomeFailed, Failure: failureText(err)}
}

// remove forgets a process.
func (s *server) remove(pid libpf.PID) {
	s.manager.SynchronizeProcess(goneTarget{kernelPID: uint32(pid)})
	s.manager.ProcessedUntil(times.GetKTime())
	if t := s.targets[pid]; t != nil {
		delete(s.targets, pid)
		s.forgetFlows(t)
		s.forgetAttached(t)
		t.close()
		s.handler.quotas.processes.give(t.user, 1)
	}
}

// nameStacks answers with the frames of stacks, of the first at least.
func (s *server) nameStacks(pid libpf.PID, stacks [][]uint64) []byte {
	if t := s.targets[pid]; t != nil {
		s.places.begin()
		s.pages.begin(t.remoteMemory().ReaderAt)
		defer s.endNaming(t)
	}
	trusted := s.trusted
	answer := s.namedStacks(pid, stacks)
	if s.trusted != trusted { // what came before had no names
		answer = s.namedStacks(pid, stacks)
	}
	return answer
}

func (s *server) namedStacks(pid libpf.PID, stacks [][]uint64) []byte {
	answer, began := newFramesAnswer(), time.Now()
	for i, words := range stacks {
		s.keep, s.span = true, Span{}
		named := Named{Frames: s.frames(pid, words), Keep: s.keep}
		if word, rest := NextWord(words); word != nil && len(rest) == 0 {
			named.Span = s.span
		}
		if !answer.add(named) || i < len(stacks)-1 && time.Since(began) > framesTime {
			break
		}
	}
	return answer.message()
}

// endNaming forgets what was read of a process.
func (s *server) endNaming(t *target) {
	if t.code != nil {
		t.code.end()
	}
	for _, code := range t.codes {
		code.end()
	}
	s.pages.forget()
	s.keepAttached(t)
}

// frames returns the frames of a stack's words, up to the first CutFrame.
func (s *server) frames(pid libpf.PID, words []uint64) []Frame {
	var frames []Frame
	for len(words) > 0 && len(frames) <= maxFrames {
		word := libpf.EbpfFrame(words)
		size := int(word.Length())
		if size == 0 || size > len(words) {
			s.keep = false
			return append(frames, Frame{Kind: CutFrame})
		}
		word, words = word[:size], words[size:]
		switch {
		case word.Flags().Error():
			frames = append(frames, Frame{Kind: CutFrame})
		case word.Type() == libpf.NativeFrame && size >= 2:
			is, right := s.isTrampoline(pid, word)
			s.keep = s.keep && (!is || word.Flags().ReturnAddress())
			if is && !right {
				return append(frames, Frame{Kind: CutFrame})
			}
			if !is {
				frames = append(frames, s.nativeFrame(pid, word))
			}
		case word.Type() == libpf.HotSpotFrame && size >= 3:
			frames = append(frames, s.jvmFrames(pid, word)...)
		default:
			frames = append(frames, s.runtimeFrames(pid, word)...)
			if last := len(frames) - 1; last >= 0 && isShim(frames[last]) {
				frames = frames[:last]
			}
		}
		if last := len(frames) - 1; last >= 0 && frames[last].Kind == CutFrame {
			break
		}
	}
	return frames
}

// nativeFrame undoes what the programs do: they look up the file and the bias of an address.
func (s *server) nativeFrame(pid libpf.PID, word libpf.EbpfFrame) Frame {
	addr, around, ok := s.handler.address(pid, host.FileID(word.Variable(0)), word.Data())
	s.keep, s.span = s.keep && ok, around
	if ok && word.Flags().ReturnAddress() {
		addr--
	}
	return Frame{Kind: NativeFrame, Address: addr}
}
