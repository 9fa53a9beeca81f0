//go:build soak

package receiver

import "testing"

// Senders that take as much as they can take the memory that the package documents.
func TestSoakMemory(t *testing.T) {
	quiet = true
	defer func() { quiet = false }()
	t.Run("gRPC", TestAbuse)
	t.Run("HTTP", TestHTTPAbuse)
	t.Run("tiny frames", TestTinyFrames)
	t.Run("responses that are not read", TestResponsesThatAreNotRead)
}
