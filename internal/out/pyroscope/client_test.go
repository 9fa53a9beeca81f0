package pyroscope

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
	"correlator/internal/out/report"
	"correlator/otlp"
	"correlator/profile"
)

const (
	testTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	recorded  = "testdata/answers.json.gz"
	golden    = "testdata/table.txt"
)

// exchange is a request to a Pyroscope, without its times, and what that answered.
type exchange struct {
	Request string
	Answer  []byte
}

// requestKey is a request without its times.
func requestKey(t testing.TB, path string, body []byte) string {
	if path == seriesPath {
		var request struct{ Matchers, LabelNames []string }
		assert.Check(t, json.Unmarshal(body, &request) == nil)
		return fmt.Sprint(path, request.Matchers, request.LabelNames)
	}
	at := bytes.IndexByte(body, '{')
	end := bytes.LastIndexByte(body, '}')
	assert.Assert(t, at > 0 && end > at, "%q", body)
	return fmt.Sprint(path, bytes.Contains(body, []byte(waitType)), string(body[at:end+1]))
}

// replay serves what a Pyroscope answered once.
func replay(t *testing.T) *httptest.Server {
	t.Helper()
	file, err := os.Open(recorded)
	assert.NilError(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	assert.NilError(t, err)
	var all []exchange
	assert.NilError(t, json.NewDecoder(z).Decode(&all))
	answers := make(map[string][]byte)
	for _, one := range all {
		answers[one.Request] = one.Answer
	}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err == nil)
		answer, known := answers[requestKey(t, r.URL.Path, body)]
		assert.Check(t, known, "%s was not recorded: %q", r.URL.Path, body)
		w.Write(answer)
	})
}

func serve(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

// table is what explain shows of a trace; url: the server's, which has another one each time.
func table(t *testing.T, url string) string {
	t.Helper()
	client, err := New(url, nil, "test")
	assert.NilError(t, err)
	var out, stderr bytes.Buffer
	assert.NilError(t, explain.Run(t.Context(), client, &out, &stderr, explain.Options{
		Query: keep.Query{ID: testTrace}, Format: explain.Table}))
	return strings.ReplaceAll(out.String(), url, "URL")
}

// What Pyroscope 1.21.0 answered of what two of five hosts had sent it is shown, by host.
func TestRecorded(t *testing.T) {
	want, err := os.ReadFile(golden)
	assert.NilError(t, err)
	server := replay(t)
	got := table(t, server.URL)
	assert.Check(t, got == string(want), "%s", got)

	client, err := New(server.URL, nil, "test")
	assert.NilError(t, err)
	for format, has := range map[report.Format]string{explain.JSON: `"host": "host-1"`,
		report.HTML: "shop-1 on host-1"} {
		var out bytes.Buffer
		assert.NilError(t, explain.Run(t.Context(), client, &out, io.Discard, explain.Options{
			Query: keep.Query{ID: testTrace}, Format: format}))
		assert.Check(t, strings.Contains(out.String(), has), "%s", format)
	}
}

// A label that only some series have tells them apart: no time is counted twice.
func TestSelector(t *testing.T) {
	all := []series{{"a": `x"\`, "__b": "2"}, {"a": `x"\`, "c": "3\n"}}
	names := labelNames(all)
	assert.Check(t, all[0].selector(names) == `{a="x\"\\",c=""}`, "%s", all[0].selector(names))
	assert.Check(t, all[1].selector(names) == `{a="x\"\\",c="3\n"}`, "%s", all[1].selector(names))
}

// Every kind of wait that is sent has its state again.
func TestStates(t *testing.T) {
	for state := range profile.ThreadStates {
		if state > profile.Unknown {
			assert.Check(t, stateOf(profile.KindOf(state)) == state, "%s", state)
		}
	}
	assert.Check(t, stateOf(profile.GCWait) == profile.Futex && stateOf(profile.IdleWait) == profile.Futex &&
		stateOf("unheard of") == profile.Other)
}

// Of answers that are none, an error says who gave them, and what; and no secret.
func TestNoAnswers(t *testing.T) {
	one := seriesOf(labels{typeLabel: cpuType, traceLabel: testTrace})
	for name, test := range map[string]struct {
		series, profile string
		status          int
		want            string
	}{
		"nothing":        {`{}`, ``, 200, "has no profiles with trace_id="},
		"a page":         {"<html>\x1b[2J", ``, 200, `is not of Pyroscope: invalid character '<' looking for`},
		"refused":        {"no: s3cret-token\x1b", ``, 401, `HTTP 401 Unauthorized: "no: REDACTED\x1b"`},
		"moved":          {``, ``, 302, "HTTP 302 Found"},
		"too many bytes": {strings.Repeat(" ", maxSeriesBytes+1), ``, 200, "larger than 8388608 bytes"},
		"a label like a hole": {seriesOf(labels{typeLabel: cpuType, traceLabel: testTrace, `a=""}`: ""}), "\xff", 200,
			"has no profiles with"},
		"another trace": {seriesOf(labels{typeLabel: cpuType, traceLabel: strings.Repeat("f", 32)}), "\xff", 200,
			"has no profiles with"},
		"no profile":       {one, "\xff\xff", 200, "SelectMergeProfile answered is not of Pyroscope"},
		"an empty profile": {one, "", 200, "are empty"},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Check(t, r.Header.Get("authorization") == "Bearer s3cret-token")
				w.Header().Set("Location", "/elsewhere")
				if r.URL.Path == seriesPath {
					w.WriteHeader(test.status)
					io.WriteString(w, test.series)
					return
				}
				io.WriteString(w, test.profile)
			})
			client, err := New(server.URL, otlp.Headers{"authorization": "Bearer s3cret-token"}, "test")
			assert.NilError(t, err)
			err = explain.Run(t.Context(), client, io.Discard, io.Discard, explain.Options{
				Query: keep.Query{ID: testTrace}, Format: explain.Table})
			assert.ErrorContains(t, err, test.want)
			assert.Check(t, strings.Contains(err.Error(), server.URL), "%v", err)
			assert.Check(t, !strings.Contains(err.Error(), "\x1b"), "%v", err)
			assert.Check(t, !strings.Contains(err.Error(), "s3cret"), "%v", err)
		})
	}
}

// labels are those of a series.
type labels map[string]string

// seriesOf is an answer with series.
func seriesOf(all ...labels) string {
	type label struct{ Name, Value string }
	type set struct{ Labels []label }
	var sets []set
	for _, one := range all {
		made := set{}
		for name, value := range one {
			made.Labels = append(made.Labels, label{name, value})
		}
		sets = append(sets, made)
	}
	text, _ := json.Marshal(map[string]any{"labelsSet": sets})
	return string(text)
}

// profileOf is a profile with samples of so many frames, and with a value each.
func profileOf(t *testing.T, frames int, values ...int64) []byte {
	t.Helper()
	f := &pprof.Function{ID: 1, Name: "f"}
	l := &pprof.Location{ID: 1, Line: slices.Repeat([]pprof.Line{{Function: f}}, min(frames, 1000))}
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "cpu", Unit: "nanoseconds"}},
		Function: []*pprof.Function{f}, Location: []*pprof.Location{l}}
	for _, value := range values {
		p.Sample = append(p.Sample, &pprof.Sample{Location: slices.Repeat([]*pprof.Location{l}, max(frames/1000, 1)),
			Value: []int64{value}})
	}
	var content bytes.Buffer
	assert.NilError(t, p.WriteUncompressed(&content))
	return content.Bytes()
}

// samples is the answer of a backend that has series with one profile each.
func samples(t *testing.T, profile []byte, all ...labels) *keep.Answer {
	t.Helper()
	for _, one := range all {
		one[traceLabel] = testTrace
	}
	client := &Client{"http://localhost", answers{seriesPath: []byte(seriesOf(all...)), profilePath: profile}}
	answer, err := client.Samples(t.Context(), keep.Query{ID: testTrace})
	assert.NilError(t, err)
	return answer
}

// A trace of too many threads is shown in part, which is said: it is waits that are left out.
func TestTooManySeries(t *testing.T) {
	all := []labels{{typeLabel: "memory"}, {typeLabel: cpuType}, {typeLabel: cpuType, "a.b": "c"}}
	for i := range maxSeries {
		all = append(all, labels{typeLabel: waitType, "n": strconv.Itoa(i)})
	}
	answer := samples(t, profileOf(t, 1, 1e9), all...)
	assert.Check(t, answer.LeftOutSeries == 3, "%d", answer.LeftOutSeries)
	assert.Check(t, len(answer.Samples) == 1 && len(answer.Waits) == maxSeries-1, "%d, %d", len(answer.Samples),
		len(answer.Waits))
}

// Where series are found by the name of their service alone, as in segments that are not compacted, a trace is found:
// in the services that are selected, if some are.
func TestServices(t *testing.T) {
	var asked []string
	var mu sync.Mutex
	serves := func(services int) *httptest.Server {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.Check(t, err == nil)
			if r.URL.Path == profilePath {
				w.Write(profileOf(t, 1, 1e9))
				return
			}
			var request struct{ Matchers, LabelNames []string }
			assert.Check(t, json.Unmarshal(body, &request) == nil)
			if len(request.Matchers) == 0 {
				assert.Check(t, slices.Equal(request.LabelNames, []string{typeLabel, serviceLabel}))
				all := make([]labels, services)
				for i := range all {
					all[i] = labels{serviceLabel: fmt.Sprint(`"shop-`, i), typeLabel: cpuType}
				}
				io.WriteString(w, seriesOf(all...))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, request.Matchers...)
			for i := range services {
				name := fmt.Sprint(`"shop-`, i)
				if strings.HasPrefix(request.Matchers[0], "{"+matcher(serviceLabel, "=", name)+",") {
					io.WriteString(w, seriesOf(labels{serviceLabel: name, typeLabel: cpuType, traceLabel: testTrace}))
					return
				}
			}
			io.WriteString(w, "{}")
		})
	}
	query := func(services int, service string) (*keep.Answer, error) {
		asked = nil
		client, err := New(serves(services).URL, nil, "test")
		assert.NilError(t, err)
		return client.Samples(t.Context(), keep.Query{ID: testTrace, Service: service})
	}
	answer, err := query(3, "")
	assert.NilError(t, err)
	assert.Check(t, len(answer.Samples) == 3 && len(answer.Processes) == 3, "%+v", answer)
	assert.Check(t, slices.Contains(asked, `{trace_id="`+testTrace+`"}`), "%q", asked)

	answer, err = query(3, `"shop-[12]`)
	assert.NilError(t, err)
	slices.Sort(asked)
	assert.Check(t, len(answer.Samples) == 2 && len(asked) == 3 && strings.HasPrefix(asked[2], `{service_name=~`), "%q",
		asked)

	_, err = query(maxServices+1, "")
	assert.ErrorContains(t, err, "has 1001 services, and is asked by service, of at most 1000: --service selects")
	answer, err = query(maxServices+1, `"shop-7`)
	assert.NilError(t, err)
	assert.Check(t, len(answer.Samples) == 1, "%+v", answer)
}

// The lists of series have a bound together.
func TestLists(t *testing.T) {
	name := strings.Repeat("n", maxSeriesBytes/4)
	client := &Client{"http://localhost", answers{seriesPath: []byte(seriesOf(labels{serviceLabel: "a", "n": name},
		labels{serviceLabel: "b"}, labels{serviceLabel: "c"}))}}
	_, err := client.Samples(t.Context(), keep.Query{ID: testTrace})
	assert.ErrorContains(t, err, "the lists of series at http://localhost are larger than 8388608 bytes")
}

// Series that only labels of Pyroscope itself tell apart are asked for once, since they have one selector, and those
// that are left out are not in the profile of another.
func TestTimeOnce(t *testing.T) {
	answer := samples(t, profileOf(t, 1, 1e9), labels{typeLabel: cpuType, "__session_id__": "1"},
		labels{typeLabel: cpuType, "__session_id__": "2"})
	assert.Check(t, len(answer.Samples) == 1 && answer.LeftOutSeries == 0, "%+v", answer)
	answer = samples(t, profileOf(t, 1, 1e9), labels{typeLabel: cpuType, "thread": "x", "thread2": "1"},
		labels{typeLabel: cpuType, "thread": "x thread2:1"})
	assert.Check(t, len(answer.Samples) == 2, "labels that look like others: %+v", answer)

	var all []labels
	for i := range maxSeries {
		all = append(all, labels{typeLabel: cpuType, "n": strconv.Itoa(i), traceLabel: testTrace})
	}
	series := seriesOf(append(all, labels{typeLabel: waitType, "z": "z", traceLabel: testTrace})...)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == seriesPath {
			io.WriteString(w, series)
			return
		}
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err == nil && bytes.Contains(body, []byte(`,z=""}`)), "%q", body)
		w.Write(profileOf(t, 1, 1e9))
	})
	client, err := New(server.URL, nil, "test")
	assert.NilError(t, err)
	_, err = client.Samples(t.Context(), keep.Query{ID: testTrace})
	assert.NilError(t, err)
}

// A small profile can have any number of frames, and any time: what there is no room for is left out.
func TestNoRoom(t *testing.T) {
	both := []labels{{typeLabel: cpuType}, {typeLabel: waitType}}
	full := maxAnswerFrames/2/1001 + 1 // of one series, with 1000 frames each
	for name, profile := range map[string][]byte{
		"frames of all stacks": profileOf(t, 1000, slices.Repeat([]int64{1e3}, full)...),
		"time":                 profileOf(t, 1, math.MaxInt64),
	} {
		answer := samples(t, profile, both...)
		assert.Check(t, answer.LeftOutSeries == 1 && len(answer.Samples) > 0 && len(answer.Waits) == 0, "%s: %d", name,
			answer.LeftOutSeries)
	}

	client := &Client{"http://localhost", answers{seriesPath: []byte(seriesOf(labels{typeLabel: cpuType,
		traceLabel: testTrace})), profilePath: profileOf(t, 3000, 1e9)}}
	_, err := client.Samples(t.Context(), keep.Query{ID: testTrace})
	assert.ErrorContains(t, err, "are empty")
}

// Equal samples of a series are one, however many a profile has: each would take a hundred times its bytes.
func TestEqualSamples(t *testing.T) {
	answer := samples(t, profileOf(t, 1, slices.Repeat([]int64{2e3}, 1000)...), labels{typeLabel: cpuType},
		labels{typeLabel: waitType})
	assert.Assert(t, len(answer.Samples) == 1 && len(answer.Waits) == 1, "%d, %d", len(answer.Samples),
		len(answer.Waits))
	assert.Check(t, answer.Samples[0].Count == 2000 && answer.Waits[0].Sum == 2*time.Millisecond, "%+v, %+v",
		answer.Samples[0], answer.Waits[0])
}

// Of hosts without a name there is the id, or that they are not known.
func TestHosts(t *testing.T) {
	answer := samples(t, profileOf(t, 1, 1e9), labels{typeLabel: cpuType}, labels{typeLabel: cpuType, "host_id": "1f"},
		labels{typeLabel: cpuType, "host_id": "1f", "host_name": "a"})
	var hosts []string
	for _, p := range answer.Processes {
		hosts = append(hosts, p.Host)
	}
	slices.Sort(hosts)
	assert.DeepEqual(t, hosts, []string{"a", "host 1f", "unknown host"})
}
