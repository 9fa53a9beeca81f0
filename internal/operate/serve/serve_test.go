package serve

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"
)

// What is used of the program is unmapped again and again, until the agent ends.
func TestTrim(t *testing.T) {
	nowhere := t.TempDir() // so that each time has a line in the log
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		ctx, stop := context.WithCancel(t.Context())
		go trim(ctx, nowhere, zap.New(core))
		time.Sleep(5 * trimInterval / 2)
		synctest.Wait()
		assert.Check(t, logs.Len() == 3, "%v", logs.All())
		stop()
		time.Sleep(2 * trimInterval)
		assert.Check(t, logs.Len() == 3, "%v", logs.All())
	})
}
