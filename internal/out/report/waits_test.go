package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/out/record"
	"correlator/profile"
)

// waited is the fixture with waits: of a transaction with samples, and of one without.
func waited(t testing.TB) (*record.Recording, *symbolNames) {
	t.Helper()
	r, names := fixture(t)
	shop := r.Processes[0]
	key := record.Key{Process: shop, TID: 111, Thread: "worker", TraceID: [16]byte{0xAB, 1},
		TransactionID: [8]byte{0xCD, 2}, Stack: stackID(1)}
	alone := key
	alone.TransactionID = [8]byte{0xEF}
	alone.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "wait", Value: "forged"},
		{Key: "route", Value: "/"}})
	r.Waits = map[record.WaitKey]profile.StateTimes{
		{Key: key, State: profile.Futex, Waker: profile.Waker{Kind: profile.ThreadWaker, PID: 9, TID: 90,
			Thread: "java-7\x1b[2J", TraceID: [16]byte{0x11},
			TransactionID: [8]byte{0x22}}}: {Sum: 1500 * time.Millisecond, Longest: 1, Count: 3},
		{Key: key, State: profile.Net, Peer: "[::1]:443",
			Waker: profile.Waker{Kind: profile.NetworkWaker}}: {Sum: 7 * time.Microsecond, Count: 1},
		{Key: alone, State: profile.Disk, Path: "/data;a\x1b[2J"}: {Sum: time.Millisecond, Count: 1},
	}
	return r, names
}

// A profile with waits has a type for them, and labels of what was waited for and who ended it; of samples it has what
// it has without them.
func TestWaitsInPProf(t *testing.T) {
	r, names := waited(t)
	p := buildProfile(r, names)
	assert.NilError(t, p.CheckValid())
	again := buildProfile(r, names)
	assert.Check(t, p.String() == again.String(), "the profile depends on chance")
	n := len(r.Samples)
	waits := p.Sample[n:]
	r.Waits = nil
	without := buildProfile(r, names)
	assert.Check(t, len(without.SampleType) == 2 && len(without.Sample) == n && len(p.SampleType) == 3 &&
		*p.SampleType[2] == pprof.ValueType{Type: "off_cpu", Unit: "nanoseconds"} && p.DefaultSampleType == "cpu", p)
	for i, s := range without.Sample {
		got := p.Sample[i]
		assert.Check(t, slices.Equal(got.Value, append(s.Value, 0)) && reflect.DeepEqual(got.Label, s.Label), got.Label)
	}
	assert.Assert(t, len(waits) == 3, "%d waits", len(waits))
	for i, want := range []struct {
		ns     int64
		labels map[string]string
	}{
		{1.5e9, map[string]string{"wait": "lock", "waker": "thread", "waker_thread": `java-7\x1b[2J`,
			"waker_trace_id": "11000000000000000000000000000000", "waker_transaction_id": "2200000000000000"}},
		{7000, map[string]string{"wait": "net", "peer": "[::1]:443", "waker": "network"}},
		{1e6, map[string]string{"wait": "disk", "path": `/data;a\x1b[2J`, "route": "/"}},
	} {
		got := waits[i]
		assert.Check(t, slices.Equal(got.Value, []int64{0, 0, want.ns}) && len(got.Location) == 4, got.Value)
		want.labels["trace_id"], want.labels["service"] = "ab010000000000000000000000000000", "shop"
		for name, text := range want.labels {
			assert.Check(t, slices.Equal(got.Label[name], []string{text}), "%s is %q, want %q", name, got.Label[name],
				text)
		}
		for _, name := range waitLabels {
			assert.Check(t, want.labels[name] != "" || got.Label[name] == nil, "%s is %q", name, got.Label[name])
		}
	}
	var content bytes.Buffer
	assert.NilError(t, p.Write(&content))
	parsed, err := pprof.Parse(&content)
	assert.Check(t, err == nil && len(parsed.Sample) == n+3, "%v", err)
}

// With waits, folded stacks are microseconds, and end with what was waited for; without, they are samples.
func TestWaitsInFolded(t *testing.T) {
	r, names := waited(t)
	content, err := encode(Folded, r, names, About{})
	assert.NilError(t, err)
	sum := 0
	for _, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		if strings.Contains(line, "[lock]") {
			sum++
			assert.Check(t, strings.HasPrefix(line, "shop;") && strings.HasSuffix(line, ";[lock] 1500000"), line)
		}
		if strings.Contains(line, "[disk") {
			sum++
			assert.Check(t, strings.HasSuffix(line, `;[disk /data:a\x1b[2J] 1000`), line)
		}
	}
	assert.Check(t, sum == 2 && strings.Contains(string(content), ";[net [::1]:443] 7\n") &&
		strings.Contains(string(content), " 900000\n"), string(content)) // 90 samples at 100 a second
	r.Waits = nil
	content, err = encode(Folded, r, names, About{})
	assert.Check(t, err == nil && strings.Contains(string(content), " 90\n"), string(content))
	assert.Check(t, !strings.Contains(string(content), "[lock]"), string(content))
}

// The flame graph has waits as stacks that end with what was waited for, and transactions that only waited.
func TestWaitsInHTML(t *testing.T) {
	r, names := waited(t)
	content, err := encode(HTML, r, names, About{Title: "x"})
	assert.NilError(t, err)
	_, text, _ := strings.Cut(string(content), `<script type="application/json" id="data">`)
	text, _, _ = strings.Cut(text, "</script>")
	var data struct {
		Names  []string
		Groups []struct{ Detail string }
		Waits  struct {
			All    uint64
			Totals []uint64
		}
	}
	assert.NilError(t, json.Unmarshal([]byte(text), &data))
	assert.Check(t, slices.Contains(data.Names, "[lock]") && slices.Contains(data.Names, `[disk /data;a\x1b[2J]`) &&
		data.Waits.All == 1_501_007, "%+v", data)
	only := slices.IndexFunc(data.Groups, func(g struct{ Detail string }) bool {
		return strings.Contains(g.Detail, "ef00")
	})
	assert.Check(t, only >= 0 && data.Waits.Totals[only] == 1000 && data.Waits.Totals[0] == 1_500_007, "%+v", data)
}

// Names are read of stacks that only waits have, too, and what was waited is said; what had no room is.
func TestWaitsInSummary(t *testing.T) {
	r, names := waited(t)
	file := &profile.File{ID: profile.FileID{9}, Kind: profile.NativeFrame, Path: "/lib/wait.so"}
	key := record.WaitKey{Key: record.Key{Process: r.Processes[1], Stack: stackID(9)}, State: profile.Unix}
	r.Stacks[key.Stack] = []profile.Frame{{File: file, Address: 0x99}}
	r.Waits[key] = profile.StateTimes{Sum: time.Second, Count: 5}
	of := want(r).processes[r.Processes[1]]
	assert.Check(t, strings.Contains(fmt.Sprint(of), "wait.so"), "%+v", of)
	r.LostWaits = 17
	var text bytes.Buffer
	assert.NilError(t, summarize(r, names).write(&text))
	for _, want := range []string{"off a CPU in transactions: 2.501s, 10 waits with a stack", "OFF CPU", "1.5s",
		"lost: 17 waits"} {
		assert.Check(t, strings.Contains(text.String(), want), "no %q in %s", want, text.String())
	}
	r.Waits = nil
	text.Reset()
	assert.NilError(t, summarize(r, names).write(&text))
	assert.Check(t, !strings.Contains(text.String(), "OFF CPU") && !strings.Contains(text.String(), "off a CPU"),
		text.String())
	r.Waits = make(map[record.WaitKey]profile.StateTimes)
	says := func() bool {
		text.Reset()
		assert.NilError(t, summarize(r, names).write(&text))
		return strings.Contains(text.String(), "explain --pid")
	}
	assert.Check(t, !says(), text.String())
	clear(r.Samples) // what has no trace has no waits
	assert.Check(t, !says(), text.String())
	r.LostWaits = 0
	assert.Check(t, says(), text.String())
	r.Accounts = []record.ThreadAccount{} // who asks for those is told of threads without traces, if there are any
	assert.Check(t, !says(), text.String())
}
