package pyroscope

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pprof "github.com/google/pprof/profile"

	"correlator/internal/host/terminal"
	"correlator/internal/out/keep"
	"correlator/otlp"
	"correlator/otlp/field"
	"correlator/profile/ids"
)

// What is read of a backend, which may send anything.
const (
	maxSeries       = 512 // of a trace
	maxSeriesBytes  = 8 << 20
	maxProfileBytes = 4 << 20
	maxAnswerBytes  = 64 << 20 // of all profiles
)

const (
	requests       = 8 // at the same time
	requestTimeout = 30 * time.Second
	queryTimeout   = 2 * time.Minute

	// defaultSince is how far back a trace is looked for. Pyroscope takes no more than a day at once.
	defaultSince = time.Hour
	// ahead is how much later than now by our clock something may be.
	ahead = time.Minute
)

// Profile types of what an agent sends.
const (
	cpuType  = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
	waitType = "off_cpu:off_cpu:nanoseconds:context_switch:count"
)

// typeLabel is the label of the profile type.
const typeLabel = "__profile_type__"

// The calls, of Connect: querier.proto has the messages.
const (
	seriesPath  = "/querier.v1.QuerierService/Series"
	profilePath = "/querier.v1.QuerierService/SelectMergeProfile"
)

// Client is a client of one Pyroscope.
type Client struct {
	url    string
	caller caller
}

// caller is an otlp.Caller.
type caller interface {
	Post(ctx context.Context, path, contentType string, body []byte, most int64) ([]byte, error)
	Close()
}

// New returns a client for the Pyroscope with a URL; headers are sent with every request.
func New(url string, headers otlp.Headers, version string) (*Client, error) {
	opened, err := otlp.OpenCaller(url, headers, requestTimeout, version)
	return &Client{url, opened}, err
}

// Samples returns what Pyroscope has of a trace.
func (c *Client) Samples(ctx context.Context, q keep.Query) (*keep.Answer, error) {
	defer c.caller.Close()
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if len(q.ID) != ids.TraceDigits {
		return nil, fmt.Errorf("a backend is asked for a trace, by its whole id of %d digits", ids.TraceDigits)
	}
	b := &builder{answer: &keep.Answer{At: time.Now(), From: c.url, SamplesPerSecond: perSecond}}
	since := q.Since
	if since.IsZero() {
		since = b.answer.At.Add(-defaultSince)
	}
	selector := []string{matcher(traceLabel, "=", q.ID)}
	if q.Service != "" {
		selector = append(selector, matcher(serviceLabel, "=~", q.Service))
	}
	within := window{since.UnixMilli(), b.answer.At.Add(ahead).UnixMilli()}
	all, err := c.series(ctx, within, "{"+strings.Join(selector, ",")+"}")
	if err != nil {
		return nil, err
	}
	found := len(all)
	known := slices.DeleteFunc(all, func(s series) bool { return !s.canBeAsked(q.ID) })
	if len(known) == 0 {
		return nil, fmt.Errorf("%s has no profiles with %s since %s (--since). It can be that nothing of it was sampled, "+
			"or that its Pyroscope is no 1.21: others may make no label of the id", c.url, selector[0],
			since.Local().Format(time.DateTime))
	}
	// CPU time goes before waits, of which there are many more series.
	slices.SortStableFunc(known, func(s, o series) int { return cmp.Compare(o.kind(), s.kind()) })
	names := labelNames(known)
	known = known[:min(len(known), maxSeries)]
	b.answer.LeftOutSeries = found - len(known)
	if err := c.addProfiles(ctx, b, within, known, names); err != nil {
		return nil, err
	}
	if len(b.answer.Transactions) == 0 {
		return nil, fmt.Errorf("the profiles that %s has with %s are empty, or too large", c.url, selector[0])
	}
	return b.answer, nil
}

// window is a time, in ms since 1970.
type window struct{ start, end int64 }

// series is the labels of a series.
type series map[string]string

func (s series) kind() string { return s[typeLabel] }

// canBeAsked reports whether a series is of a trace, has time, and has no label that cannot be in a selector.
func (s series) canBeAsked(trace string) bool {
	for name := range s {
		if !isLabel(name) {
			return false
		}
	}
	return s[traceLabel] == trace && (s.kind() == cpuType || s.kind() == waitType)
}

// selector returns what selects the series among some: those that lack a label match any value otherwise.
func (s series) selector(names []string) string {
	matchers := make([]string, len(names))
	for i, name := range names {
		matchers[i] = matcher(name, "=", s[name])
	}
	return "{" + strings.Join(matchers, ",") + "}"
}

// matcher returns a matcher of a label. Values are quoted as in Go.
func matcher(name, operator, value string) string {
	return fmt.Sprintf("%s%s%q", name, operator, value)
}

// series returns the series that a selector selects, in an order that is always the same.
func (c *Client) series(ctx context.Context, within window, selector string) ([]series, error) {
	body, err := json.Marshal(map[string]any{"matchers": []string{selector}, "start": within.start, "end": within.end})
	if err != nil {
		return nil, err
	}
	content, err := c.caller.Post(ctx, seriesPath, "application/json", body, maxSeriesBytes)
	if err != nil {
		return nil, err
	}
	var answer struct {
		LabelsSet []struct {
			Labels []struct{ Name, Value string }
		}
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return nil, c.invalidAnswer(seriesPath, content, err)
	}
	made := make(map[string]series)
	for _, set := range answer.LabelsSet {
		s := make(series)
		for _, l := range set.Labels {
			// No others of Pyroscope itself tell series apart, as they are not asked for.
			if l.Name == typeLabel || !strings.HasPrefix(l.Name, "__") {
				s[l.Name] = l.Value
			}
		}
		made[fmt.Sprint(s)] = s // maps print in order
	}
	all := make([]series, 0, len(made))
	for _, key := range slices.Sorted(maps.Keys(made)) {
		all = append(all, made[key])
	}
	return all, nil
}

// isLabel reports whether a text is a name that can be in a selector.
func isLabel(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// invalidAnswer is the error for an answer that is none.
func (c *Client) invalidAnswer(path string, content []byte, err error) error {
	const maxExcerpt = 100
	return fmt.Errorf("what %s answered is not of Pyroscope: %w: %+q", terminal.Escape(c.url+path), err,
		content[:min(len(content), maxExcerpt)])
}

// addProfiles adds the profile of each series; names: of their labels. Each is decoded when the one before it is added,
// since it takes many times its bytes.
func (c *Client) addProfiles(ctx context.Context, b *builder, within window, all []series, names []string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	contents := make([][]byte, len(all))
	var next, read atomic.Int64
	var running sync.WaitGroup
	for range requests {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				request := profileRequest(within, all[i], names)
				content, err := c.caller.Post(ctx, profilePath, "application/proto", request, maxProfileBytes)
				if err == nil && read.Add(int64(len(content))) > maxAnswerBytes {
					err = fmt.Errorf("the profiles at %s are larger than %d bytes", c.url, maxAnswerBytes)
				}
				if err != nil {
					stop(err)
				}
				contents[i] = content
			}
		})
	}
	running.Wait()
	for i, content := range contents {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		p, err := c.profile(content)
		if err != nil {
			return err
		}
		b.add(all[i], p)
	}
	return nil
}

// profile decodes a profile.
func (c *Client) profile(content []byte) (*pprof.Profile, error) {
	if len(content) == 0 {
		return new(pprof.Profile), nil
	}
	p, err := pprof.ParseUncompressed(content)
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		return nil, c.invalidAnswer(profilePath, content, err)
	}
	return p, nil
}

// profileRequest is a SelectMergeProfileRequest.
func profileRequest(within window, s series, names []string) (request []byte) {
	request = field.Append(request, 1, s.kind())
	request = field.Append(request, 2, s.selector(names))
	request = field.AppendVarint(request, 3, uint64(within.start))
	return field.AppendVarint(request, 4, uint64(within.end))
}

// labelNames returns the names of labels that tell series apart; those of Pyroscope itself do not.
func labelNames(all []series) []string {
	names := make(map[string]bool)
	for _, s := range all {
		for name := range s {
			if !strings.HasPrefix(name, "__") {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
