package export

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/stats"
)

// What is gathered for Prometheus takes memory as well.
func TestOpenCensusMemory(t *testing.T) {
	c := DefaultOpenCensus()
	n := c.MemoryBytes()
	assert.Check(t, n == 0, "%d bytes without a socket", n)
	c.Receiver.Socket = "/s"
	without := c.MemoryBytes()
	c.Prometheus = true
	if n := c.MemoryBytes() - without; n != stats.DefaultMaxMemory || without <= stats.DefaultMaxMemory {
		t.Errorf("%d bytes, and %d more for Prometheus", without, n)
	}
}
