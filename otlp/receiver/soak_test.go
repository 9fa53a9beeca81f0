//go:build soak

package receiver

import (
	"bytes"
	"io"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Senders that take as much as they can take the memory that the package documents.
func TestSoakMemory(t *testing.T) {
	quiet = true
	defer func() { quiet = false }()
	t.Run("gRPC", TestAbuse)
	t.Run("HTTP", TestHTTPAbuse)
	t.Run("tiny frames", testTinyFrames)
	t.Run("responses that are not read", TestResponsesThatAreNotRead)
}

// A request in frames of one byte takes no more memory than in large ones.
func testTinyFrames(t *testing.T) {
	l := openLab(t, Config{})
	conn, err := net.Dial("unix", l.Addr().String())
	assert.NilError(t, err)
	defer conn.Close()
	go io.Copy(io.Discard, conn)
	bound := measure(t)
	const streams, size = 2, window / 2
	out := opening()
	for i := range streams {
		stream := uint32(2*i + 1)
		out = append(append(out, call(stream)...), frame(frameData, 0, stream, prefix(size))...)
	}
	_, err = conn.Write(out)
	assert.NilError(t, err)
	out = out[:0]
	for i := range streams {
		out = append(out, frame(frameData, 0, uint32(2*i+1), []byte{0})...)
	}
	out = bytes.Repeat(out, 100)
	for range size/100 - 1 {
		_, err := conn.Write(out)
		assert.NilError(t, err)
	}
	testenv.Poll(t, patience, "all are being read", func() bool { return l.inWork() == streams })
	bound(streams*2*size + 256<<10) // about the connection's share
}
