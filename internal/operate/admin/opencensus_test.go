package admin

import (
	"maps"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/receiver"
)

func TestWriteOpenCensus(t *testing.T) {
	status := example()
	table := string(testenv.ReadFile(t, "testdata/status.txt"))
	drops := [receiver.NumDrops]uint64{receiver.Malformed: 2, receiver.QueueFull: 7}
	for _, c := range []struct {
		name string
		of   receiver.Status
		want []string
	}{
		{"nothing yet", receiver.Status{Path: "/run/oc", MaxConnections: 4096}, []string{
			"receiving OpenCensus at /run/oc: 0 of 4096 connections, messages: nothing yet",
		}},
		{"losses", receiver.Status{
			Path: "/run/oc\x1b[2J", Connections: 3, MaxConnections: 4096, ClosedConnections: 2, NotProtocol: 5,
			LastError: "too many open files", LastErrorAt: status.At.Add(-time.Minute),
			Traces:     receiver.Messages{Received: 30, Processed: 20, Dropped: 9, Waiting: 1, DroppedBy: drops},
			Stats:      receiver.Messages{Received: 40, Processed: 40},
			ClientLost: 6,
			Spans:      receiver.Items{Exported: 100, Dropped: 8}, Points: receiver.Items{Exported: 24, Dropped: 1},
			Measures: 2, Views: 4, Series: 12, Measurements: 70,
			NoView: 3,
		}, []string{
			`receiving OpenCensus at /run/oc\x1b[2J: 3 of 4096 connections, messages: traces 30 (dropped: queue_full 7, ` +
				`malformed 2), stats 40`,
			"spans: 100, dropped: 8; measurements: 70 in 12 series of 4 views, without a view: 3; data points: 24, " +
				"dropped: 1; lost by clients: 6 messages",
			"closed connections of OpenCensus clients: 7",
			`last error of /run/oc\x1b[2J, 1m0s ago: too many open files`,
		}},
	} {
		status.OTLP = &OTLP{OpenCensus: newOpenCensus(&c.of)}
		var got strings.Builder
		assert.NilError(t, WriteStatus(&got, &status))
		if want := table + "\n" + strings.Join(c.want, "\n") + "\n"; got.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got.String(), want)
		}
	}
	for name, m := range status.OTLP.OpenCensus.Messages {
		sum := m.Processed + m.Waiting
		for _, n := range m.Dropped {
			sum += n
		}
		assert.Check(t, m.Dropped != nil && m.Received == sum, "%s: %+v", name, m)
	}
	got, want := status.OTLP.OpenCensus.Messages["traces"].Dropped,
		(map[string]uint64{"malformed": 2, "queue_full": 7})
	assert.Check(t, maps.Equal(got, want), "dropped: %v, want %v", got, want)
}
