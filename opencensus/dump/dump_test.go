package dump_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"gotest.tools/v3/assert"

	"correlator/opencensus/dump"
	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// everything is a stream with every type of message, and every kind of loss but that of memory.
func everything() []byte {
	c := client.Client{PID: 24983, ThreadID: 0x7fa1, Now: func() time.Time { return time.UnixMicro(1795196498065889) }}
	b := c.ProcessInit(nil, "8.2.35", "4.2.35")
	b = c.RequestInit(b, "\x1b[31m", "\xff")
	b = c.Message(b, wire.RequestInit, client.AppendInit(nil, wire.Init{Version: 2}))
	b = c.SetReportingPeriod(b, 2.5)
	b = c.CreateMeasure(b, wire.Measure{Type: wire.Int, Name: "bytes", Description: "sent", Unit: "By"})
	b = c.CreateMeasure(b, wire.Measure{Type: wire.Unknown, Name: "none"})
	b = c.RegisterViews(b,
		wire.View{Name: "v", Measure: "m", TagKeys: []string{"a", "b"}, Aggregation: wire.Sum},
		wire.View{Name: "w", Measure: "m", Aggregation: wire.Distribution, Boundaries: []float64{0, 0.5}},
		wire.View{Name: "x", Measure: "m", Aggregation: 9})
	b = c.UnregisterViews(b, "v", "w")
	b = append(b, "noise"...)
	b = c.Record(b, &wire.Record{
		Measurements: []wire.Measurement{
			{Measure: []byte("i"), Type: wire.Int, Int: 3}, {Measure: []byte("f"), Type: wire.Float, Float: 0.5},
			{Measure: []byte("u"), Type: wire.Unknown},
		},
		Tags:        []wire.KeyValue{{Key: []byte("route"), Value: []byte("/")}},
		Attachments: []wire.KeyValue{{Key: []byte("host"), Value: []byte("a\nb")}},
	})
	negative := wire.Measurement{Measure: []byte("i"), Type: wire.Int, Int: 1<<64 - 1}
	b = c.Record(b, &wire.Record{Measurements: []wire.Measurement{negative}})
	b = c.Message(b, 99, []byte("?"))
	truncated := c.TraceExport(nil, `[{"name":"`+strings.Repeat("x", 1000)+`"}]`)
	b = append(b, truncated[:500]...)
	b = c.TraceExport(b, `[{},{"a":[{}]}]`)
	b = c.TraceExport(b, `{"1":{}}`)
	b = c.TraceExport(b, "")
	b = c.TraceExport(b, "[{]")
	b = c.RequestShutdown(b)
	c.Padded = true
	b = c.ProcessShutdown(b)
	return append(b, 0, 0)
}

// table is what Table prints for everything.
//
//go:embed testdata/table.txt
var table string

func TestTable(t *testing.T) {
	var out strings.Builder
	assert.NilError(t, dump.Table(&out, bytes.NewReader(everything())))
	if out.String() != table {
		t.Errorf("%s", out.String())
	}
}

// Of what is too much to be decoded, the number is there.
func TestMore(t *testing.T) {
	c := client.Client{PID: 1}
	b := c.Record(nil, &wire.Record{
		Measurements: slices.Repeat([]wire.Measurement{{Type: wire.Unknown}}, wire.MaxMeasurements+4),
		Tags:         make([]wire.KeyValue, wire.MaxKeyValues+5),
		Attachments:  make([]wire.KeyValue, wire.MaxKeyValues+6),
	})
	b = c.RegisterViews(b, wire.View{TagKeys: make([]string, wire.MaxTagKeys+7)})
	b = c.RegisterViews(b, make([]wire.View, wire.MaxViews+8)...)
	b = c.UnregisterViews(b, make([]string, wire.MaxViews+9)...)
	var lines strings.Builder
	assert.NilError(t, dump.JSON(&lines, bytes.NewReader(b)))
	for n := 4; n <= 9; n++ {
		if text := fmt.Sprintf(`"more":%d}`, n); strings.Count(lines.String(), text) != 1 {
			t.Errorf("%s is there %d times", text, strings.Count(lines.String(), text))
		}
	}
}

// In reads of a byte, the columns stay where they are, and the head is there once.
func TestTableInPieces(t *testing.T) {
	var out strings.Builder
	assert.NilError(t, dump.Table(&out, iotest.OneByteReader(bytes.NewReader(everything()))))
	if out.String() != table {
		t.Errorf("%s", out.String())
	}
}

func TestJSON(t *testing.T) {
	const header = `"sequence":N,"pid":24983,"threadId":32673,"sent":"2026-11-20T17:41:38.065889Z"`
	expected := []string{
		`{"offset":0,"type":"proc_init",H1,"length":15,"payload":{"version":1,"php":"8.2.35","zend":"4.2.35"}}`,
		`{"offset":36,"type":"req_init",H1,"length":9,"payload":{"version":1,"php":"\u001b[31m","zend":{"hex":"ff"}}}`,
		`{"offset":66,"type":"req_init",H2,"length":3,"payload":{"version":2,"php":"","zend":""}}`,
		`{"offset":90,"type":"view_reporting_period",H3,"length":8,"payload":{"seconds":2.5}}`,
		`{"offset":119,"type":"measure_create",H4,"length":15,` +
			`"payload":{"type":"int","name":"bytes","description":"sent","unit":"By"}}`,
		`{"offset":155,"type":"measure_create",H5,"length":8,` +
			`"payload":{"type":"unknown","name":"none","description":"","unit":""}}`,
		`{"offset":184,"type":"view_register",H6,"length":43,"payload":[` +
			`{"name":"v","description":"","tagKeys":["a","b"],"measure":"m","aggregation":"sum"},` +
			`{"name":"w","description":"","tagKeys":[],"measure":"m",` +
			`"aggregation":"distribution","boundaries":[0,0.5]},` +
			`{"name":"x","description":"","tagKeys":[],"measure":"m","aggregation":"aggregation 9"}]}`,
		`{"offset":248,"type":"view_unregister",H7,"length":5,"payload":["v","w"]}`,
		`{"offset":274,"lost":"no_header","bytes":5}`,
		`{"offset":279,"type":"stats_record",H8,"length":38,"payload":{"measurements":[` +
			`{"measure":"i","type":"int","value":3},{"measure":"f","type":"float","value":0.5},` +
			`{"measure":"u","type":"unknown"}],` +
			`"tags":[{"key":"route","value":"/"}],"attachments":[{"key":"host","value":"a\nb"}]}}`,
		`{"offset":338,"lost":"malformed","bytes":28,"type":"stats_record",H9,"length":7,` +
			`"error":"variable-length integer is longer than needed, or exceeds 64 bits"}`,
		`{"offset":366,"lost":"unknown_type","bytes":22,"type":"type 99",H10,"length":1}`,
		`{"offset":388,"lost":"truncated","bytes":500,"type":"trace_export",H11,"length":1013}`,
		`{"offset":888,"type":"trace_export",H12,"length":15,"payload":{"spans":2}}`,
		`{"offset":924,"type":"trace_export",H13,"length":8,"payload":{"spans":1}}`,
		`{"offset":953,"type":"trace_export",H14,"length":0,"payload":{"spans":0}}`,
		`{"offset":974,"type":"trace_export",H15,"length":3,` +
			`"error":"decoding spans: invalid character ']' looking for beginning of object key string"}`,
		`{"offset":998,"type":"req_shutdown",H16,"length":0}`,
		`{"offset":1019,"type":"proc_shutdown",H17,"padded":true,"length":0}`,
		`{"offset":1040,"lost":"truncated","bytes":2}`,
	}
	var out strings.Builder
	assert.NilError(t, dump.JSON(&out, bytes.NewReader(everything())))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, line := range lines {
		if i >= len(expected) {
			t.Errorf("one more: %s", line)
			continue
		}
		if before, rest, ok := strings.Cut(expected[i], "H"); ok && rest[0] >= '0' && rest[0] <= '9' {
			sequence, behind, _ := strings.Cut(rest, ",")
			expected[i] = before + strings.Replace(header, "N", sequence, 1) + "," + behind
		}
		if strings.Contains(expected[i], "padded") {
			expected[i] = strings.Replace(expected[i], "17:41:38.065889Z", "17:42:24Z", 1)
		}
		assert.Check(t, line == expected[i], "%s\n%s", line, expected[i])
	}
	if len(lines) < len(expected) {
		t.Errorf("missing: %s", expected[len(lines)])
	}
}

// Numbers that JSON does not have are texts.
func TestJSONOfNumbers(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("../testdata/captures/44-stats-record-float-specials.bin"))
	assert.NilError(t, err)
	var out strings.Builder
	assert.NilError(t, dump.JSON(&out, bytes.NewReader(content)))
	for _, value := range []string{`0`, `-0`, `-1.5`, `"NaN"`, `"Infinity"`, `"-Infinity"`} {
		if !strings.Contains(out.String(), `"value":`+value+"}") {
			t.Errorf("no %s in %s", value, out.String())
		}
	}
}

// What has arrived is printed before the next read.
func TestPrintedAtOnce(t *testing.T) {
	in, send := io.Pipe()
	receive, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := dump.JSON(out, in)
		out.Close()
		done <- err
	}()
	c := client.Client{PID: 1}
	for range 2 {
		_, err := send.Write(c.RequestShutdown(nil))
		assert.NilError(t, err)
		var line struct{ Type string }
		buffer := make([]byte, 1000)
		n, err := receive.Read(buffer) // which would wait for ever
		if err != nil || json.Unmarshal(buffer[:n], &line) != nil || line.Type != "req_shutdown" {
			t.Errorf("%q (%v)", buffer[:n], err)
		}
	}
	send.Close()
	err := <-done
	assert.Check(t, err)
}

// A long content is cut in tables.
func TestTableIsNarrow(t *testing.T) {
	c := client.Client{PID: 1}
	long := strings.Repeat("ü", 100_000)
	stream := c.UnregisterViews(nil, long, long)
	var out strings.Builder
	assert.NilError(t, dump.Table(&out, bytes.NewReader(stream)))
	row := strings.Split(out.String(), "\n")[1]
	assert.Check(t, strings.HasSuffix(row, "üü…") && len([]rune(row)) <= 400,
		"%d characters: %s", len([]rune(row)), row)
}

func TestErrors(t *testing.T) {
	for _, write := range []func(io.Writer, io.Reader) error{dump.Table, dump.JSON} {
		broken := errors.New("broken")
		err := write(io.Discard, iotest.ErrReader(broken))
		assert.Check(t, errors.Is(err, broken), err)
		noise := bytes.NewReader(bytes.Repeat([]byte("x"), 100_000))
		err = write(io.Discard, noise)
		assert.Check(t, errors.Is(err, wire.ErrNotProtocol), err)
		err = write(failing{broken}, bytes.NewReader(everything()))
		assert.Check(t, errors.Is(err, broken), err)
	}
}

// How many spans a payload has, or why none.
func TestSpans(t *testing.T) {
	c := client.Client{PID: 7, ThreadID: 8, Now: time.Now}
	for payload, want := range map[string]string{
		`[]`: `{"spans":0}`, `[1,{}]`: `{"spans":2}`, `{"a":1,"b":2}`: `{"spans":2}`,
		`[1`: "EOF", `[1,]`: "invalid", `{"a"`: "EOF", `{"a":1`: "EOF", `[1] 2`: "text behind the spans",
	} {
		var out bytes.Buffer
		assert.Check(t, dump.Table(&out, bytes.NewReader(c.TraceExport(nil, payload))))
		assert.Check(t, strings.Contains(out.String(), want), "%s: no %s in %s", payload, want, out.String())
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Whatever the stream is, a table has nothing that controls a terminal, and every line of JSON is
// an object.
func FuzzDump(f *testing.F) {
	f.Add(everything())
	f.Fuzz(func(t *testing.T, stream []byte) {
		var out bytes.Buffer
		err := dump.Table(&out, bytes.NewReader(stream))
		assert.Check(t, err == nil || errors.Is(err, wire.ErrNotProtocol), err)
		for _, r := range out.String() {
			if r != '\n' && !unicode.IsGraphic(r) {
				t.Errorf("%q in %q", r, out.String())
			}
		}
		out.Reset()
		err = dump.JSON(&out, bytes.NewReader(stream))
		assert.Check(t, err == nil || errors.Is(err, wire.ErrNotProtocol), err)
		for line := range bytes.Lines(out.Bytes()) {
			var object map[string]any
			assert.Check(t, json.Unmarshal(line, &object), "%q", line)
		}
	})
}
