package processcontext_test

import (
	"errors"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/processcontext"
	"correlator/internal/lab/demo"
	"correlator/memread"
)

func texts(pairs []demo.OTelPair) map[string]string {
	m := make(map[string]string)
	for _, pair := range pairs {
		m[pair.Key] = pair.Value
	}
	return m
}

// Contexts of a program that publishes by the rules, in every way that these allow.
func TestProgram(t *testing.T) {
	for name, options := range map[string]demo.OTelOptions{
		"default": {}, "in place": {SamePayload: true}, "old libdatadog": {KeysInResource: true},
		"no threads": {NoThreads: true}, "static": {Program: demo.OTelStatic}, "musl": {Musl: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := demo.StartOTel(t, options)
			resource := texts(demo.OTelResource())
			ofThreads := map[string]bool{"threadlocal.schema_version": true, "threadlocal.attribute_key_map": true}
			before := checkProgram(t, w, resource, ofThreads, options)
			if at := w.Published().PublishedAt; before.PublishedAt != at {
				t.Errorf("published at %d, not %d", before.PublishedAt, at)
			}
			w.SetResource("service.version", "2")
			resource["service.version"] = "2"
			at := w.Publish().PublishedAt
			after := checkProgram(t, w, resource, ofThreads, options)
			assert.Check(t, after.Header != before.Header && after.PublishedAt == at, "%+v, then %+v", before, after)
		})
	}
}

func checkProgram(t *testing.T, w *demo.OTel, resource map[string]string, unknown map[string]bool,
	options demo.OTelOptions) processcontext.Context {
	t.Helper()
	if options.KeysInResource { // where the peer does not look
		memory := memread.Open("/proc", w.PID)
		defer memory.Close()
		c, err := processcontext.Read(memory, contextOf(t, w.PID))
		if err != nil || !c.HasThreadContexts() || !slices.Equal(c.Keys, demo.OTelKeys()) ||
			c.Value("service.name") != resource["service.name"] {
			t.Fatalf("%+v, %v", c, err)
		}
		return c
	}
	c := check(t, w.PID, resource, unknown)
	if c.HasThreadContexts() == options.NoThreads || !options.NoThreads && !slices.Equal(c.Keys, demo.OTelKeys()) {
		t.Errorf("%+v", c)
	}
	return c
}

// What no honest program publishes.
func TestSpoiltHeader(t *testing.T) {
	for field, test := range map[string]struct {
		value uint64
		want  error
	}{
		"signature":    {1, processcontext.ErrNoContext},
		"version":      {3, processcontext.ErrVersion},
		"payload_size": {1 << 30, processcontext.ErrMalformed},
		"published_at": {0, processcontext.ErrUpdating},
		"payload":      {8, processcontext.ErrMalformed},
	} {
		w := demo.StartOTel(t, demo.OTelOptions{})
		w.SpoilHeader(field, test.value)
		memory := memread.Open("/proc", w.PID)
		defer memory.Close()
		c, err := processcontext.Read(memory, contextOf(t, w.PID))
		assert.Check(t, errors.Is(err, test.want), "%s: %+v, %v", field, c, err)
	}
}
