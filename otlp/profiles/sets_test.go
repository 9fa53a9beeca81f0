package profiles

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// What a thread published is part of what a sample is, with the keys and texts that it has, as far as
// they can be sent.
func TestPublishedAttributes(t *testing.T) {
	with := func(texts ...string) profile.Sample {
		var list []profile.Attribute
		for i := 0; i < len(texts); i += 2 {
			list = append(list, profile.Attribute{Key: texts[i], Value: texts[i+1]})
		}
		s := sampleOf(shop, profile.Frame{Address: 1})
		s.Attributes = profile.NewAttributes(list)
		return s
	}
	long := strings.Repeat("l", maxTextBytes)
	for _, c := range []struct {
		name    string
		samples []profile.Sample
		want    []string // of each sample in the request
	}{
		{"none", []profile.Sample{with(), with()}, []string{""}},
		{"a set", []profile.Sample{with("http.route", "/pay/:id", "datadog.local_root_span_id", "00f067aa0ba902b7")},
			[]string{`"datadog.local_root_span_id"="00f067aa0ba902b7","http.route"="/pay/:id",`}},
		{"samples are of sets",
			[]profile.Sample{with("a", "1"), with("a", "2"), with("a", "1"), with("a", "1", "b", "1"), with()},
			[]string{`"a"="1",`, `"a"="2",`, `"a"="1","b"="1",`, ""}},
		{"an empty value", []profile.Sample{with("a", "")}, []string{`"a"="",`}},
		{"no key, or one of ours", []profile.Sample{with("", "x"), with("thread.id", "x", "thread.name", "main",
			"transaction.id", "y", "profile.frame.type", "native", "process.executable.build_id.gnu", "z")},
			[]string{""}},
		{"not UTF-8", []profile.Sample{with("a\xff", "1"), with("a\ufffd", "1"), with("b", "\xff"),
			with("a\xff", "1", "a\ufffd", "2")},
			[]string{"\"a\ufffd\"=\"1\",", "\"b\"=\"\ufffd\",", "\"a\ufffd\"=\"2\","}},
		{"the same in another order", []profile.Sample{with("a\x80", "1", "aµ", "2"), with("a\ufffd", "1", "aµ", "2")},
			[]string{"\"aµ\"=\"2\",\"a\ufffd\"=\"1\","}},
		{"too long", []profile.Sample{with(long+"x", long+"y"), with(long, long)},
			[]string{`"` + long + `"="` + long + `",`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := one(t, testOptions(&counter{}), c.samples...)
			d := request.Dictionary
			samples := request.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples
			assert.Assert(t, len(samples) == len(c.want), "%d samples", len(samples))
			for i, s := range samples {
				a := attributes(d, s.AttributeIndices)
				if got := publishedIn(a); got != c.want[i] || a["thread.name"].GetStringValue() != "main" {
					t.Errorf("sample %d has %s, want %s", i, got, c.want[i])
				}
			}
		})
	}
}

// Sets of a sample that was not taken are forgotten with it.
func TestPublishedAttributesNotTaken(t *testing.T) {
	options := testOptions(&counter{})
	options.MaxBytes = 2000
	b, requests := collect(options)
	sample := func(value string) *profile.Sample {
		s := sampleOf(shop, profile.Frame{Address: 1})
		s.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "k", Value: value}})
		return &s
	}
	want, got := make(map[observation]uint64), make(map[observation]uint64)
	long := strings.Repeat("x", 3000)
	for _, value := range []string{"first", long, "second", "first", long, "third"} {
		s := sample(value)
		err := b.Add(s)
		assert.Assert(t, len(value) > 2000 == errors.Is(err, ErrTooLarge), err)
		if err == nil {
			observe(s, want)
		}
	}
	b.Flush()
	for _, r := range *requests {
		observations(t, decode(t, r.Body), got)
	}
	assert.Check(t, maps.Equal(got, want), "%v, want %v", got, want)
}

// Everything that is known of who a process is.
func TestResource(t *testing.T) {
	options := testOptions(&counter{})
	options.HostName = "node-1"
	r := &profile.Resource{
		Service: profile.Service{Name: "shop", Namespace: "store", Version: "1.2", InstanceID: "i-1",
			Environment: "prod", SDKName: "opentelemetry", SDKLanguage: "java", SDKVersion: "1.50\xff"},
		ContainerID: "c0ffee", PodUID: "p0d", PID: 42, ExecutableName: "java", ExecutablePath: "/usr/bin/java",
	}
	got := resourceOf(one(t, options, sampleOf(r, profile.Frame{Address: 1})).ResourceProfiles[0])
	want := map[string]string{
		"service.name": "shop", "service.namespace": "store", "service.version": "1.2", "service.instance.id": "i-1",
		"deployment.environment.name": "prod", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.language": "java",
		"telemetry.sdk.version": "1.50\ufffd", "container.id": "c0ffee", "k8s.pod.uid": "p0d", "process.pid": "42",
		"process.executable.name": "java", "process.executable.path": "/usr/bin/java", "host.id": "host",
		"host.name": "node-1",
	}
	assert.Check(t, maps.Equal(got, want), got)
}
