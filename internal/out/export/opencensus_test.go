package export

import (
	"testing"

	"correlator/opencensus/stats"
)

// What is gathered for Prometheus takes memory as well.
func TestOpenCensusMemory(t *testing.T) {
	c := DefaultOpenCensus()
	if n := c.MemoryBytes(); n != 0 {
		t.Errorf("%d bytes without a socket", n)
	}
	c.Receiver.Socket = "/s"
	without := c.MemoryBytes()
	c.Prometheus = true
	if n := c.MemoryBytes() - without; n != stats.DefaultMaxMemory || without <= stats.DefaultMaxMemory {
		t.Errorf("%d bytes, and %d more for Prometheus", without, n)
	}
}
