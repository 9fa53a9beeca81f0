package receiver

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/stats"
	"correlator/opencensus/wire"
)

// Views and names of views that are too many to be decoded are counted.
func TestLeftOut(t *testing.T) {
	l := openLab(t, Config{}, Options{})
	c := client.Client{PID: 17}
	data := c.RegisterViews(nil, make([]wire.View, wire.MaxViews+3)...)
	l.send(c.UnregisterViews(data, make([]string, wire.MaxViews+2)...))
	l.finish()
	counts := l.stats.Counts()
	assert.Check(t, counts.Views == wire.MaxViews+3 && counts.Lost[stats.ViewTooMany] == 3 &&
		counts.Lost[stats.UnregisterTooMany] == 2,
		"%d views, %v", counts.Views, counts.Lost)
}
