package pyroscope

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
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
	maxServices     = 1000
	maxSeries       = 512     // of a trace
	maxSeriesBytes  = 8 << 20 // of all answers that list some
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
	within := window{since.UnixMilli(), b.answer.At.Add(ahead).UnixMilli()}
	all, err := c.seriesOf(ctx, within, q)
	if err != nil {
		return nil, err
	}
	found := len(all)
	known := slices.DeleteFunc(all, func(s series) bool { return !s.canBeAsked(q.ID) })
	if len(known) == 0 {
		return nil, fmt.Errorf("%s has no profiles with %s since %s (--since). It can be that nothing of it was sampled, "+
			"or that its Pyroscope is no 1.21: others may make no label of the id", c.url, matcher(traceLabel, "=", q.ID),
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
		return nil, fmt.Errorf("the profiles that %s has with %s are empty, or too large", c.url,
			matcher(traceLabel, "=", q.ID))
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

// seriesOf returns the series of a trace, in an order that is always the same. In object storage of version 2, those
// that are not compacted yet are found by the name of their service alone.
func (c *Client) seriesOf(ctx context.Context, within window, q keep.Query) ([]series, error) {
	if _, err := regexp.Compile(q.Service); err != nil {
		return nil, err
	}
	is, err := regexp.Compile(`^(?:` + q.Service + `)$`)
	if err != nil {
		return nil, err
	}
	var read atomic.Int64
	known, err := c.series(ctx, &read, within, nil, []string{typeLabel, serviceLabel})
	if err != nil {
		return nil, err
	}
	var selectors []string
	add := func(more ...string) {
		selectors = append(selectors, "{"+strings.Join(append(more, matcher(traceLabel, "=", q.ID)), ",")+"}")
	}
	services := make(map[string]bool)
	for _, s := range known {
		if name := s[serviceLabel]; name != "" && (q.Service == "" || is.MatchString(name)) {
			services[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		add(matcher(serviceLabel, "=", name))
	}
	if len(selectors) > maxServices {
		return nil, fmt.Errorf("%s has %d services, and is asked by service, of at most %d: --service selects those "+
			"whose names match a regular expression", c.url, len(selectors), maxServices)
	}
	if q.Service == "" {
		add()
	} else {
		add(matcher(serviceLabel, "=~", q.Service))
	}
	found := make([][]series, len(selectors))
	err = each(ctx, len(selectors), func(ctx context.Context, i int) (err error) {
		found[i], err = c.series(ctx, &read, within, selectors[i:i+1], nil)
		return err
	})
	made := make(map[string]series)
	for _, s := range slices.Concat(found...) {
		made[fmt.Sprintf("%q", s)] = s // maps print in order
	}
	all := make([]series, 0, len(made))
	for _, key := range slices.Sorted(maps.Keys(made)) {
		all = append(all, made[key])
	}
	return all, err
}

// each does something n times, some at the same time, until there is an error.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range requests {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					stop(err)
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// series returns the series that selectors select, with all labels or those that are named.
func (c *Client) series(ctx context.Context, read *atomic.Int64, within window, selectors, names []string) (
	[]series, error) {
	body, err := json.Marshal(map[string]any{"matchers": selectors, "labelNames": names, "start": within.start,
		"end": within.end})
	if err != nil {
		return nil, err
	}
	content, err := c.caller.Post(ctx, seriesPath, "application/json", body, maxSeriesBytes)
	if err == nil && read.Add(int64(len(content))) > maxSeriesBytes {
		err = fmt.Errorf("the lists of series at %s are larger than %d bytes", c.url, maxSeriesBytes)
	}
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
	all := make([]series, 0, len(answer.LabelsSet))
	for _, set := range answer.LabelsSet {
		s := make(series)
		for _, l := range set.Labels {
			// No others of Pyroscope itself tell series apart, as they are not asked for.
			if l.Name == typeLabel || !strings.HasPrefix(l.Name, "__") {
				s[l.Name] = l.Value
			}
		}
		all = append(all, s)
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
	contents := make([][]byte, len(all))
	var read atomic.Int64
	err := each(ctx, len(all), func(ctx context.Context, i int) (err error) {
		request := profileRequest(within, all[i], names)
		contents[i], err = c.caller.Post(ctx, profilePath, "application/proto", request, maxProfileBytes)
		if err == nil && read.Add(int64(len(contents[i]))) > maxAnswerBytes {
			err = fmt.Errorf("the profiles at %s are larger than %d bytes", c.url, maxAnswerBytes)
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, content := range contents {
		if ctx.Err() != nil {
			return context.Cause(ctx)
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
