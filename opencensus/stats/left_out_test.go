package stats

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/internal/client"
	"correlator/opencensus/wire"
)

// What is not even decoded is counted as what is refused: with the losses that say too many.
func TestLeftOut(t *testing.T) {
	payload := client.AppendRecord(nil, &wire.Record{
		Measurements: ints("m", make([]uint64, wire.MaxMeasurements+7)...),
		Tags:         slices.Repeat(pairs("k", "v"), wire.MaxKeyValues+2),
		Attachments:  slices.Repeat(pairs("a", "b"), wire.MaxKeyValues+3),
	})
	var r wire.Record
	assert.NilError(t, r.Decode(payload))
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.registerView(viewOf("v", wire.LastValue))
		u.Record(&r, time.Time{})
		u.LeftOut(4, 5)
	})
	counts := s.Counts()
	if counts.Measurements != wire.MaxMeasurements+7 || counts.Aggregated != maxMeasurements || counts.Views != 5 {
		t.Errorf("%d measurements, %d aggregated, %d views", counts.Measurements, counts.Aggregated, counts.Views)
	}
	for loss, want := range map[Loss]uint64{
		TooManyOfRecord: wire.MaxMeasurements + 7 - maxMeasurements,
		TagsTooMany:     2*(wire.MaxKeyValues-maxTags) + 2 + 3,
		ViewTooMany:     4, UnregisterTooMany: 5,
	} {
		if counts.Lost[loss] != want {
			what, reason := loss.Labels()
			t.Errorf("%d %s lost by %s, want %d", counts.Lost[loss], what, reason, want)
		}
	}
	checkSums(t, &counts)
}
