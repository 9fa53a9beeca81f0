package bpf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// fakeG and fakeM are what is read of a Go runtime's structures, in a layout that none has.
type fakeG struct {
	m      *fakeM
	labels uintptr // of what a fakeGo has
}

type fakeM struct {
	number uint64
	curg   *fakeG
	extra  bool
}

type fakeLabel struct{ key, value string }

type fakeMap struct {
	count      uint64
	flags, log uint8
	_          [6]byte
	buckets    *fakeBucket
	old        *fakeBucket
}

type fakeBucket struct {
	top          [8]uint8
	keys, values [8]string
	overflow     *fakeBucket
}

// fakeGo is what the thread of a test has.
type fakeGo struct {
	g    *fakeG
	own  fakeG
	m    fakeM
	list []fakeLabel
	maps fakeMap
	ptr  *fakeMap
	rows [8]fakeBucket
}

// set makes what is there whole, with labels as key, value.
func (f *fakeGo) set(inMap bool, texts ...string) {
	*f = fakeGo{}
	f.g, f.m = &f.own, fakeM{number: uint64(unix.Gettid()), curg: &f.own}
	f.own.m = &f.m
	for i := 0; i < len(texts); i += 2 {
		f.list = append(f.list, fakeLabel{texts[i], texts[i+1]})
	}
	f.own.labels = uintptr(unsafe.Pointer(&f.list))
	if !inMap {
		return
	}
	f.own.labels = uintptr(unsafe.Pointer(&f.ptr))
	f.ptr, f.maps.count, f.maps.buckets = &f.maps, uint64(len(f.list)), &f.rows[0]
	for i, label := range f.list {
		row := &f.rows[i/8]
		row.top[i%8], row.keys[i%8], row.values[i%8] = 5, label.key, label.value
	}
}

// layout is where the thread of a test, which stays that, has what is there.
func (f *fakeGo) layout(t *testing.T) GoLayout {
	t.Helper()
	threads, err := OpenThreads()
	assert.NilError(t, err)
	defer threads.Close()
	found, err := threads.Process(os.Getpid(), nil)
	assert.NilError(t, err)
	i := slices.IndexFunc(found, func(thread Thread) bool { return thread.TID == unix.Gettid() })
	pointer := found[i].ThreadPointer
	if pointer == 0 {
		pointer = uint64(uintptr(unsafe.Pointer(&f.own))) // as G of 0 is a register
		setThreadPointer(t, uintptr(pointer))
	}
	return GoLayout{G: int64(uint64(uintptr(unsafe.Pointer(&f.g))) - pointer), GLabels: 8, MCurG: 8, MExtra: 16}
}

// setThreadPointer gives the thread a pointer, which it has none of in programs without C on arm64.
func setThreadPointer(t *testing.T, pointer uintptr) {
	t.Helper()
	assert.Assert(t, runtime.GOARCH == "arm64")
	code, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	assert.NilError(t, err)
	binary.LittleEndian.PutUint64(code, 0xd65f03c0_d51bd040) // msr tpidr_el0, x0; ret
	assert.NilError(t, unix.Mprotect(code, unix.PROT_READ|unix.PROT_EXEC))
	entry := &code[0]
	function := &entry
	(*(*func(uintptr))(unsafe.Pointer(&function)))(pointer)
	sleepInTest() // the kernel learns of it when the thread leaves its CPU
	assert.NilError(t, unix.Munmap(code))
}

// unmap moves the keys of the first n labels, which get the length of one that is read, to where no memory is.
func (f *fakeGo) unmap(n int) {
	for i := range n {
		f.list[i].key = labelTrace[0]
		*(*uintptr)(unsafe.Pointer(&f.list[i].key)) = 1 << 12
	}
}

// several returns n labels that nobody reads, and some more.
func several(n int, more ...string) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint("key", i), "value")
	}
	return append(texts, more...)
}

var (
	labelTrace = []string{"trace_id", recordTrace, "span_id", recordSpan}
	labelKeys  = []LabelKey{{"trace_id", TraceIDLabel}, {"span_id", SpanIDLabel}, {"span id", SpanDecimalLabel},
		{"root_id", RootIDLabel}, {"local root span id", RootDecimalLabel}, {"span_name", NameLabel},
		{strings.Repeat("k", MaxLabelKeyBytes), NameLabel}}
)

func rootAttribute(id string) string { return "\x00\x10" + id }

type labelTest struct {
	name       string
	inMap      bool
	labels     []string
	change     func(*fakeGo)
	trace      bool   // recordTrace and recordSpan
	attributes string // that are counted
	refused    bool
}

var labelTests = []labelTest{
	{name: "ids", labels: labelTrace, trace: true},
	{name: "among others", labels: several(5, "trace_id", strings.ToUpper(recordTrace), "b", "", "span_id", recordSpan),
		trace: true},
	{name: "31 labels", labels: several(29, labelTrace...), trace: true},
	{name: "32 labels", labels: several(30, labelTrace...), refused: true},
	{name: "decimal", labels: []string{"trace_id", recordTrace, "span id", "67667974448284343"}, trace: true},
	{name: "without a trace", labels: []string{"span id", "18446744073709551615", "local root span id", "10"},
		attributes: rootAttribute("000000000000000a") + "\x01\x10" + "ffffffffffffffff"},
	{name: "above 64 bits", labels: []string{"local root span id", "18446744073709551616"}, refused: true},
	{name: "far above 64 bits", labels: []string{"local root span id", "29999999999999999999"}, refused: true},
	{name: "21 digits", labels: []string{"local root span id", "000000000000000000001"}, refused: true},
	{name: "20 digits", labels: []string{"local root span id", "10000000000000000000"},
		attributes: rootAttribute("8ac7230489e80000")},
	{name: "no decimal digits", labels: append(several(1), "local root span id", "12a"), refused: true},
	{name: "no decimal digits below", labels: append(several(1), "local root span id", "12/"), refused: true},
	{name: "root", labels: append([]string{"root_id", "00000000000000fe", "span_name", "GET /"}, labelTrace...),
		trace: true, attributes: rootAttribute("00000000000000fe") + "\x02\x05GET /"},
	{name: "a long name", labels: []string{strings.Repeat("k", MaxLabelKeyBytes), strings.Repeat("n", 128)},
		attributes: "\x02\x7f" + strings.Repeat("n", 127)},
	{name: "a key that is longer", labels: []string{strings.Repeat("k", MaxLabelKeyBytes+1), "n"}},
	{name: "a key that is shorter", labels: []string{"trace_i", recordTrace, "span_id\x00", recordSpan}},
	{name: "31 digits", labels: []string{"trace_id", recordTrace[1:], "span_id", recordSpan}, refused: true},
	{name: "33 digits", labels: []string{"trace_id", recordTrace + "0", "span_id", recordSpan}, refused: true},
	{name: "no digits", labels: []string{"trace_id", recordTrace[1:] + "g", "span_id", recordSpan}, refused: true},
	{name: "15 digits", labels: []string{"trace_id", recordTrace, "span_id", recordSpan[1:]}, refused: true},
	{name: "zeros", labels: []string{"trace_id", strings.Repeat("0", 32), "span_id", recordSpan},
		attributes: "\x01\x10" + recordSpan},
	{name: "no span", labels: labelTrace[:2]},
	{name: "none"},

	{name: "null", labels: labelTrace, change: func(f *fakeGo) { f.own.labels = 0 }},
	{name: "no g", labels: labelTrace, change: func(f *fakeGo) { f.g = nil }},
	{name: "no goroutine", labels: labelTrace, change: func(f *fakeGo) { f.m.curg = nil }},
	{name: "in C", labels: labelTrace, change: func(f *fakeGo) { f.m.extra = true }},
	{name: "on the scheduler's stack", labels: labelTrace, trace: true,
		change: func(f *fakeGo) { f.g = &fakeG{m: &f.m} }},
	{name: "labels that are not mapped", labels: labelTrace, change: func(f *fakeGo) { f.own.labels = 1 << 12 },
		refused: true},
	{name: "a key that is not mapped", labels: append([]string{"root_id", "00000000000000fe"}, labelTrace...),
		trace: true, change: func(f *fakeGo) { f.unmap(1) }},
	{name: "4 keys that are not mapped", labels: append(several(29), labelTrace...), trace: true,
		change: func(f *fakeGo) { f.unmap(4) }},
	{name: "5 keys that are not mapped", labels: append(several(29), labelTrace...), refused: true,
		change: func(f *fakeGo) { f.unmap(5) }},
	{name: "a thread that begins", labels: labelTrace, change: func(f *fakeGo) { f.m.number = 0 }},
	{name: "another thread", labels: labelTrace, change: func(f *fakeGo) { f.m.number++ }, refused: true},
	{name: "a goroutine of another thread", labels: labelTrace, refused: true,
		change: func(f *fakeGo) { f.m.curg = &fakeG{m: &fakeM{}, labels: f.own.labels} }},
	{name: "a goroutine of no thread", labels: labelTrace,
		change: func(f *fakeGo) { f.m.curg = &fakeG{labels: f.own.labels} }},
	{name: "more than there is room", labels: labelTrace, refused: true,
		change: func(f *fakeGo) { (*[3]int)(unsafe.Pointer(&f.list))[2] = 1 }},

	{name: "map", inMap: true, labels: labelTrace, trace: true},
	{name: "4 buckets", inMap: true, labels: several(24, labelTrace...), trace: true,
		change: func(f *fakeGo) { f.maps.log = 2 }},
	{name: "overflow", inMap: true, labels: several(8, labelTrace...), trace: true,
		change: func(f *fakeGo) { f.rows[0].overflow = &f.rows[1] }},
	{name: "27 in a map", inMap: true, labels: several(25, labelTrace...), refused: true,
		change: func(f *fakeGo) { f.maps.log = 2 }},
	{name: "8 buckets", inMap: true, labels: labelTrace, change: func(f *fakeGo) { f.maps.log = 3 }, refused: true},
	{name: "growing", inMap: true, labels: labelTrace, change: func(f *fakeGo) { f.maps.old = &f.rows[1] },
		refused: true},
	{name: "being written", inMap: true, labels: labelTrace, change: func(f *fakeGo) { f.maps.flags = 4 },
		refused: true},
	{name: "one too many", inMap: true, labels: labelTrace, change: func(f *fakeGo) { f.maps.count-- }, refused: true},
	{name: "one missing", inMap: true, labels: labelTrace, change: func(f *fakeGo) { f.rows[0].top[0] = 4 },
		refused: true},
	{name: "endless", inMap: true, labels: several(6, labelTrace...), refused: true,
		change: func(f *fakeGo) { f.rows[0].overflow = &f.rows[0] }},
	{name: "empty map", inMap: true},
	{name: "null map", inMap: true, labels: labelTrace, change: func(f *fakeGo) { f.ptr = nil }},
}

// Characters beside digits, and such with a bit more or less, are none.
func init() {
	for _, c := range []byte("/:@G`g\x00\x10\x1a\xb0\xe1") {
		labelTests = append(labelTests, labelTest{name: fmt.Sprintf("with %q", c), refused: true,
			labels: []string{"trace_id", recordTrace[:17] + string([]byte{c}) + recordTrace[18:], "span_id", recordSpan}})
	}
}

// Programs of which nobody knows whether labels are a tracer's have no accounts until that is said, of themselves, and
// then those of threads that were there.
func TestGoLabelsUnseen(t *testing.T) {
	s := openSampler(t, SamplerOptions{Labels: labelKeys})
	w := openWaits(t, s, WaitOptions{NoWalks: true})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fake := new(fakeGo)
	rules := TargetRules{Labels: fake.layout(t), Unseen: true}
	set := func() Target { return addRules(t, s, os.Getpid(), func() TargetRules { return rules }) }
	accounts := func() (n int) {
		t.Helper()
		for range 3 {
			fake.set(false, labelTrace...)
			sleepInTest()
			fake.set(false)
			sleepInTest()
		}
		assert.NilError(t, w.Drain(func(*Account) { n++ }))
		return n
	}
	former := set()
	assert.Check(t, accounts() == 0)
	assert.NilError(t, s.RemoveTarget(former))
	target := set()
	assert.Check(t, target != former)
	assert.NilError(t, s.SawTrace(former))
	assert.Check(t, accounts() == 0)
	assert.NilError(t, s.SawTrace(target))
	assert.Check(t, accounts() > 0)
	assert.Check(t, set() == target && accounts() > 0)
	assert.NilError(t, s.RemoveTarget(target))
	rules.Unseen = false
	set()
	assert.Check(t, accounts() > 0)
	runtime.KeepAlive(fake)
}

// What the labels of a thread's goroutine say is its context; what they are not fit to say is none, and counted.
func TestGoLabels(t *testing.T) {
	s := openSampler(t, SamplerOptions{KeepUntraced: true, BySpan: true, ByThread: true, Labels: labelKeys,
		Attributes: LabelAttributes})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fake, tid := new(fakeGo), unix.Gettid()
	layout := fake.layout(t)
	var form bool
	for _, test := range labelTests {
		fake.set(test.inMap, test.labels...)
		if test.change != nil {
			test.change(fake)
		}
		if target := layout; test.name == labelTests[0].name || test.inMap != form {
			form, target.Map = test.inMap, test.inMap
			addRules(t, s, os.Getpid(), func() TargetRules { return TargetRules{Labels: target} })
		}
		before := readSide(t, s).LabelsRefused
		drainAll(t, s) // of the case before
		samples, burnt := 0, 0
		testenv.Poll(t, waiting, "samples of "+test.name, func() bool {
			for i := range 1 << 20 {
				burnt ^= i
			}
			assert.NilError(t, s.Drain(func(c Count) {
				if c.TID != tid {
					return
				}
				samples++
				trace, span := hex.EncodeToString(c.TraceID[:]), hex.EncodeToString(c.SpanID[:])
				assert.Check(t, (trace == recordTrace && span == recordSpan) == test.trace &&
					(c.TraceID == [16]byte{}) == !test.trace && (c.SpanID == [8]byte{}) == !test.trace,
					"%s: %s, %s", test.name, trace, span)
				assert.Check(t, bytes.Equal(c.Attributes, []byte(test.attributes)) &&
					c.OTel == (test.trace || test.attributes != "") && c.OfLabels == (test.attributes != ""),
					"%s: %q", test.name, c.Attributes)
			}))
			return samples > 0
		})
		if test.refused {
			assert.Check(t, readSide(t, s).LabelsRefused > before, "%s: not refused", test.name)
		}
	}
	runtime.KeepAlive(fake)
}

// Keys that cannot be read are refused before anything is loaded, and so is a role that there is not.
func TestLabelKeys(t *testing.T) {
	for _, keys := range [][]LabelKey{
		{{"", TraceIDLabel}}, {{strings.Repeat("k", MaxLabelKeyBytes+1), TraceIDLabel}},
		{{"a", 0}}, {{"a", NameLabel + 1}},
		make([]LabelKey, MaxLabelKeys+1),
	} {
		_, err := newGoKeys(keys)
		assert.ErrorIs(t, err, errLabelKeys)
	}
	_, err := newGoKeys(labelKeys)
	assert.NilError(t, err)
}

// A program that changes its layout again and again has the last one, and takes no room of others.
func TestGoLayouts(t *testing.T) {
	s := openSampler(t, SamplerOptions{Labels: labelKeys})
	layouts := &s.table.layouts
	other := addRules(t, s, os.Getppid(), func() TargetRules { return TargetRules{Labels: GoLayout{G: 9, Map: true}} })
	for i := range 600 {
		target := addRules(t, s, os.Getpid(), func() TargetRules {
			return TargetRules{Labels: GoLayout{G: int64(-i)*8 - 8, GM: 1}, Owner: "user 1"}
		})
		var none, own, others samplerGoLayout
		for number, layout := range map[uint8]*samplerGoLayout{
			0: &none, layouts.of[target]: &own, layouts.of[other]: &others,
		} {
			assert.NilError(t, s.objects.GoLayouts.Lookup(uint32(number), layout))
		}
		assert.Assert(t, own.G == int64(-i)*8-8 && own.G_m == 1 && others.G == 9 && others.G_m == 0 &&
			own.Form == uint8(samplerGoLabelsFormGO_LABELS_SLICE) &&
			others.Form == uint8(samplerGoLabelsFormGO_LABELS_MAP), "%d: %+v, %+v", i, own, others)
		assert.Check(t, none.Form == 0)
	}
	assert.Check(t, readSide(t, s).LabelsUnread == 0)
}

// An owner has a bound of layouts, with which others' are not refused; a target without room is a target all the
// same, is counted, and has room again when others are gone.
func TestGoLayoutsFull(t *testing.T) {
	s := openSampler(t, SamplerOptions{Labels: labelKeys})
	layouts := &s.table.layouts
	taken := 0
	take := func(owner string) uint8 { taken++; return layouts.take(GoLayout{G: int64(taken)}, owner) }
	for range maxOwnerLayouts {
		assert.Assert(t, take("mallory") > 0)
	}
	assert.Check(t, take("mallory") == 0 && layouts.unread.Load() == 1)
	assert.Check(t, layouts.take(GoLayout{G: 1}, "alice") == layouts.take(GoLayout{G: 1}, "mallory"), "it is the same")
	var last uint8
	for i := maxOwnerLayouts; i < 255; i++ {
		last = take(string(rune('a' + i/maxOwnerLayouts)))
		assert.Assert(t, last > 0, "%d", i)
	}
	set := func(rules TargetRules) uint8 {
		return layouts.of[addRules(t, s, os.Getpid(), func() TargetRules { return rules })]
	}
	rules := TargetRules{Labels: GoLayout{G: -8}, Owner: "alice"}
	other := exec.Command("cat")
	testenv.Start(t, other)
	freed := addRules(t, s, other.Process.Pid, func() TargetRules {
		return TargetRules{Labels: layouts.slots[last].layout, Owner: "carol"}
	})
	refused := addRules(t, s, os.Getpid(), func() TargetRules { return rules })
	assert.Check(t, layouts.of[freed] == last && layouts.of[refused] == 0 && readSide(t, s).LabelsUnread == 2)
	layouts.release(last)
	assert.NilError(t, s.RemoveTarget(freed))
	var value samplerCorrelatorTarget
	tgid := s.table.tgids[refused]
	assert.NilError(t, s.table.table.Lookup(&tgid, &value))
	assert.Check(t, layouts.of[refused] == last && value.Labels == last && value.Check == checkSum(&value),
		"what was refused is not tried again: %+v", value)
	assert.Check(t, set(rules) == last && readSide(t, s).LabelsUnread == 2)
	assert.Check(t, layouts.take(GoLayout{G: -16}, "bob") == 0)
	target := s.table.byTGID[uint32(os.Getpid())]
	if target == nil { // in a pid namespace
		for _, target = range s.table.byTGID {
		}
	}
	assert.NilError(t, s.RemoveTarget(target.target))
	assert.Check(t, layouts.take(GoLayout{G: -16}, "bob") == last)

	without := openSampler(t, SamplerOptions{})
	addRules(t, without, os.Getpid(), func() TargetRules { return rules })
	assert.Check(t, readSide(t, without).LabelsUnread == 1)
}
