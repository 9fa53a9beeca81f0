// Package accesstest gives tests access to processes. Their TestMain must call worker.Main with
// access.Kind.
package accesstest

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

// Open returns a Client that is closed when the test ends.
func Open(t testing.TB) *access.Client {
	t.Helper()
	client, err := access.Open("/proc", new(worker.Counters))
	assert.NilError(t, err)
	t.Cleanup(client.Close)
	return client
}
