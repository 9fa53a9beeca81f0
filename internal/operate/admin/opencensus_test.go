package admin

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/out/export"
	"correlator/opencensus/receiver"
	"correlator/otlp"
)

func TestWriteOpenCensus(t *testing.T) {
	status := example()
	table := string(testenv.ReadFile(t, "testdata/status.txt"))
	drops := map[string]uint64{"malformed": 2, "queue_full": 7}
	for _, c := range []struct {
		name string
		of   receiver.Status
		want []string
	}{
		{"nothing yet", receiver.Status{Path: "/run/oc", MaxConnections: 4096}, []string{
			"receiving OpenCensus at /run/oc: 0 of 4096 connections, messages: nothing yet",
		}},
		{"losses", receiver.Status{
			Path: "/run/oc\x1b[2J", Connections: 3, MaxConnections: 4096, ClosedConnections: 7,
			LastError: &otlp.Failure{Message: "too many open files", At: status.At.Add(-time.Minute)},
			Messages: map[string]receiver.Messages{
				"traces": {Received: 30, Processed: 20, Dropped: drops, Waiting: 1},
				"stats":  {Received: 40, Processed: 40},
			},
			ClientLost: 6, Spans: 100, SpansDropped: 8, Points: 24, PointsDropped: 1,
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
		status.OTLP = &export.Status{OpenCensus: &c.of}
		var got strings.Builder
		assert.NilError(t, WriteStatus(&got, &status))
		if want := table + "\n" + strings.Join(c.want, "\n") + "\n"; got.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got.String(), want)
		}
	}
}
