package explain

import (
	"cmp"
	"context"
	"encoding/json"

	"correlator/internal/out/flamegraph"
	"correlator/internal/out/keep"
	"correlator/internal/out/report"
)

// LiveTimeline returns the timeline of a transaction as the page of the live view reads it: flamegraph.TimelineData, or
// an object whose none says why there is none. An error says that it cannot be told now.
func LiveTimeline(ctx context.Context, kept *keep.Keep, of keep.Only) (content []byte, err error) {
	err = kept.Glance(ctx, keep.Query{Only: &of}, func(a *keep.Answer) error {
		made, err := liveTimeline(a)
		if err != nil {
			made, err = json.Marshal(map[string]string{"none": err.Error()})
		}
		content = made
		return err
	})
	return content, err
}

func liveTimeline(a *keep.Answer) ([]byte, error) {
	none := "no sample or wait of it is kept yet"
	if a.Gone != "" {
		none = "its samples are not kept: " + cmp.Or(goneTexts[a.Gone], a.Gone)
	}
	if len(a.Transactions) > 0 {
		none = "no times are kept of what it did"
		r, err := recording(a)
		if err != nil {
			return nil, err
		}
		e, timed := explain(a, r), false
		content, err := report.TimelineData(r, func(shown report.Shown) *flamegraph.Timeline {
			timeline := newTimeline(a, r, e, shown)
			timed = timeline != nil
			return timeline
		})
		if timed || err != nil {
			return content, err
		}
	}
	return json.Marshal(map[string]string{"none": none})
}
