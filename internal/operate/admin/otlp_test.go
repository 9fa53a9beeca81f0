package admin

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/host/terminal"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

func seconds(s float64) agent.Seconds { return agent.Seconds(s * float64(time.Second)) }

// exporting is a status with four destinations: one that works, one that is at its limit, one that
// is down with hostile texts, and one that does not respond.
func exporting() Status {
	s := example()
	until := s.At.Add(12 * time.Second)
	s.OTLP = &export.Status{
		Destinations: []otlp.Status{
			{
				Name: "https://otlp.example.com:4317", Endpoint: "https://otlp.example.com:4317", State: "open",
				LastError:   &otlp.Failure{Message: "UNAVAILABLE: is long over", At: s.At.Add(-11 * time.Minute)},
				Concurrency: 4, MaxConcurrency: 4, Latency: seconds(0.0214), ItemsPerSecond: 812.25,
				BytesPerSecond: 34000,
				Accepted:       1300007, Sent: 1300000, Dropped: otlp.Drops{"rejected": 7},
			},
			{
				Name: "far", Endpoint: "http://far:4317", State: "open",
				Unsupported:   []string{"profiles"},
				QueuedBatches: 37, QueuedItems: 20100, QueuedBytes: 3_141_592, Oldest: seconds(95),
				InFlight: 2, Concurrency: 2, MaxConcurrency: 2, Latency: seconds(0.231),
				ItemsPerSecond: 4400, BytesPerSecond: 735_000,
				Accepted: 90100, Sent: 60000, Dropped: otlp.Drops{"queue_full": 8000, "unsupported": 1000},
			},
			{
				Name: "evil\x1b[2J", Endpoint: "unix:/run/evil.sock", State: "waiting", Until: until,
				LastError: &otlp.Failure{Message: "UNAVAILABLE: \x1b]0;title\a" + strings.Repeat("long ", 100),
					At: s.At.Add(-3 * time.Second)},
				QueuedBatches: 1, QueuedItems: 5, QueuedBytes: 999, Oldest: seconds(3), MaxConcurrency: 4,
				Latency:  seconds(0.00004),
				Accepted: 5,
			},
			{
				Name: "mute", Endpoint: "http://mute:4317", State: "open",
				NoAnswerSince: s.At.Add(-7 * time.Second),
				QueuedBatches: 3, QueuedItems: 3, QueuedBytes: 800, Oldest: seconds(7),
				InFlight: 4, Concurrency: 4, MaxConcurrency: 4, Accepted: 7,
			},
		},
		Samples: 1299000, Lost: 12,
		Receiver: &receiver.Status{
			Address: "/run/correlator/otlp.sock", Connections: 3, RefusedConnections: 2, InWork: 1,
			LastError: &otlp.Failure{Message: "reading certificate: permission denied", At: s.At.Add(-time.Minute)},
			Signals: []receiver.Signal{
				{Signal: "traces", Received: 5000, PassedOn: 4977, Rejected: 3, Refused: 20},
				{Signal: "metrics", Received: 1, PassedOn: 1}, {Signal: "profiles"},
			},
		},
	}
	return s
}

func TestWriteOTLP(t *testing.T) {
	status := exporting()
	table, otlp := string(testenv.ReadFile(t, "testdata/status.txt")), string(testenv.ReadFile(t, "testdata/otlp.txt"))
	var got strings.Builder
	if err := WriteStatus(&got, &status); err != nil || got.String() != table+otlp {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got.String(), table+otlp)
	}
	status.OTLP = &export.Status{Receiver: &receiver.Status{Address: "127.0.0.1:4317"}}
	got.Reset()
	WriteStatus(&got, &status)
	const idle = "\nreceiving at 127.0.0.1:4317: 0 connections, 0 requests in work, items: nothing yet\n"
	if text, ok := strings.CutPrefix(got.String(), table); !ok || text != idle {
		t.Errorf("got\n%s", got.String())
	}
}

// The object "otlp" follows the fields of a status without an export, which stay as they are.
func TestOTLPAsJSON(t *testing.T) {
	want := exporting()
	text, err := json.Marshal(want)
	assert.NilError(t, err)
	withoutOTLP, err := json.Marshal(want.Status)
	assert.NilError(t, err)
	rest, ok := strings.CutPrefix(string(text), strings.TrimSuffix(string(withoutOTLP), "}")+`,"otlp":`)
	assert.Assert(t, ok, "%s does not continue %s", text, withoutOTLP)
	const far = `{"name":"far","endpoint":"http://far:4317","state":"open","unsupported":["profiles"],` +
		`"queued_batches":37,"queued_items":20100,"queued_bytes":3141592,"oldest_seconds":95,` +
		`"in_flight":2,"concurrency":2,"max_concurrency":2,"latency_seconds":0.231,"items_per_second":4400,"bytes_per_second":735000,` +
		`"accepted":90100,"sent":60000,"dropped":{"queue_full":8000,"unsupported":1000}}`
	const received = `"samples":1299000,"samples_lost":12,"receiver":{"address":"/run/correlator/otlp.sock","connections":3,"refused_connections":2,"in_work":1,` +
		`"last_error":{"message":"reading certificate: permission denied","at":"2026-07-01T11:59:00Z"},` +
		`"signals":[{"signal":"traces","received":5000,"passed_on":4977,"rejected":3,"refused":20},`
	for _, want := range []string{far, received,
		`"state":"waiting","until":"2026-07-01T12:00:12Z","last_error":{"message":"UNAVAILABLE: `} {
		assert.Check(t, strings.Contains(rest, want), "no %s in\n%s", want, rest)
	}
	want.OTLP = nil
	if text, err := json.Marshal(want); err != nil || string(text) != string(withoutOTLP) {
		t.Errorf("%v: without an export %s", err, text)
	}
}

// A limit is reported only where more concurrency helps.
func TestLimited(t *testing.T) {
	a := otlp.Status{State: "open", QueuedBatches: 1, InFlight: 4, Concurrency: 4, MaxConcurrency: 4,
		Oldest: 4e9, Latency: 1e9}
	for what, c := range map[string]struct {
		change func(d *otlp.Status)
		want   bool
	}{
		"all that may be in flight are":     {func(*otlp.Status) {}, true},
		"nothing waits":                     {func(d *otlp.Status) { d.QueuedBatches = 0 }, false},
		"a request more could be in flight": {func(d *otlp.Status) { d.InFlight = 3 }, false},
		"it was waited for, of late":        {func(d *otlp.Status) { d.InFlight, d.Concurrency = 2, 2 }, false},
		"it is waited for":                  {func(d *otlp.Status) { d.State = "waiting" }, false},
		"there is no response":              {func(d *otlp.Status) { d.NoAnswerSince = time.Unix(1, 0) }, false},
		"a burst":                           {func(d *otlp.Status) { d.Oldest, d.Latency = 1e9, 1e8 }, false},
		"a burst of large requests":         {func(d *otlp.Status) { d.Latency = 3e9 }, false},
	} {
		d := a
		c.change(&d)
		assert.Check(t, limited(&d) == c.want, "%s: limited is %v", what, !c.want)
	}
}

// The table fits any terminal: what can be spared is left out, and the rest is cut.
func TestOTLPOnNarrowTerminal(t *testing.T) {
	status := exporting()
	for columns, want := range map[int]string{
		130: "DESTINATION STATE QUEUED BATCHES OLDEST IN FLIGHT LATENCY ITEMS/S SENT DROPPED",
		90:  "DESTINATION STATE QUEUED OLDEST ITEMS/S SENT DROPPED",
		60:  "DESTINATI… STATE QUEUED ITEMS/S SENT DROPPED",
	} {
		lines := destinationTable(&status).Lines(columns)
		for _, line := range lines {
			if terminal.Width(line) > columns {
				t.Errorf("%d columns of %d: %s", terminal.Width(line), columns, line)
			}
		}
		got := strings.Join(strings.Fields(lines[0]), " ")
		assert.Check(t, got == want, "%d columns: %s, want %s", columns, got, want)
	}
}

// On a terminal the lines of OTLP are below the totals, which stay, and nothing wraps or moves up.
func TestWatchOTLP(t *testing.T) {
	t.Setenv("TERM", "xterm")
	path := filepath.Join(t.TempDir(), "admin.sock")
	status := exporting()
	for i := range 50 {
		p := status.Processes[0]
		p.PID = 5000 + i
		status.Processes = append(status.Processes, p)
	}
	serve(t, path, &source{status: status})
	for _, size := range []struct{ columns, rows int }{{80, 24}, {160, 80}, {40, 14}, {8, 3}, {1, 1}} {
		t.Run(fmt.Sprintf("%dx%d", size.columns, size.rows), func(t *testing.T) {
			e := drawn(t, path, size.columns, size.rows)
			if size.rows < 14 {
				return
			}
			checkProcesses(t, e, len(status.Processes))
			totals, _ := e.find("53 processes")
			table, _ := e.find("DESTINA")
			if totals < 0 || table < totals {
				t.Errorf("totals in row %d, destinations in %d of %q", totals, table, e.lines())
			}
			if row, _ := e.find("last error of /run"); row != size.rows-1 && size.rows < 80 && size.rows > 14 {
				t.Errorf("what is received in row %d of %q", row, e.lines())
			}
		})
	}
}

// Processes and their errors are left out before the lines of OTLP.
func TestFitRowsOfOTLP(t *testing.T) {
	p := page{head: split("head|title"), processes: split("1|2|3|4|5"), troubles: split("new|old"),
		totals: split("processes|samples"),
		otlp:   split("names|a|b|receiving")}
	checkLines(t, p, map[int]string{
		0:  "head|title|1|2|3|4|5||new|old||processes|samples||names|a|b|receiving",
		18: "head|title|1|2|3|4|5||new|old||processes|samples||names|a|b|receiving",
		17: "head|title|1|2|3|… and 2 more processes||new|old||processes|samples||names|a|b|receiving",
		16: "head|title|1|2|… and 3 more processes||new|old||processes|samples||names|a|b|receiving",
		13: "head|title|… and 5 more processes||and of 2 more||processes|samples||names|a|b|receiving",
		12: "head|title|1|… and 4 more processes||processes|samples||names|a|b|receiving",
		11: "head|title|… and 5 more processes||processes|samples||names|a|b|receiving",
		9:  "head|title|… and 5 more processes||processes|samples||names|… and 3 more lines",
		7:  "head|title|1|… and 4 more processes||processes|samples",
		5:  "head|title||processes|samples",
	})
}
