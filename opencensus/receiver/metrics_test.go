package receiver

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
	"correlator/otlp"
)

// exports returns how many requests with metrics were accepted.
func (s *store) exports() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		if b.Signal() == otlp.Metrics {
			n++
		}
	}
	return n
}

// Clients repeat the period in every request, and different applications have different ones. None
// of that keeps an export from happening.
func TestPeriodRepeated(t *testing.T) {
	l := openLab(t, Config{}, Options{})
	conn := l.dial()
	c := client.Client{PID: 1}
	l.write(conn, records(setUp(nil, &c), &c, 1))
	testenv.Poll(t, patience, "three exports", func() bool {
		data := c.SetReportingPeriod(c.SetReportingPeriod(nil, 1), 1.5)
		l.write(conn, records(c.SetReportingPeriod(data, 1), &c, 1))
		return l.exports() >= 3
	})
	l.finish()
	l.wantSum(counter, int64(l.count(`processed_messages_total{type="stats_record"}`)))
	l.want("exported_points_total", float64(l.exports()))
}

// While the queue takes no metrics, the views are updated; what it did not take is in the next
// export.
func TestMetricsWait(t *testing.T) {
	queue, release := stalled()
	l := openLab(t, Config{}, Options{Queue: queue})
	conn := l.dial()
	c := client.Client{PID: 1}
	l.write(conn, records(c.SetReportingPeriod(setUp(nil, &c), 1), &c, 5))
	<-queue.entered // the first export waits
	l.write(conn, records(nil, &c, 5))
	l.wait(`processed_messages_total{type="stats_record"}`, 10)
	<-queue.entered // another one, since the first has been given up
	assert.Check(t, l.count(`refused_points_total{reason="overload"}`) != 0, "no refusal is counted")
	release()
	l.finish()
	l.wantSum(counter, 10)
}
