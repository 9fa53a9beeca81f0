package stats

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// The page that a Gather is written to is bounded, whatever it consists of, and others have a part of it.
func TestGatherWritten(t *testing.T) {
	keys := make([]string, maxTagKeys)
	for i := range keys {
		keys[i] = strings.Repeat("k", 200) + fmt.Sprint(i)
	}
	s := New(Options{})
	for i := range 40 {
		s.Update(moment, func(u *Update) {
			u.SetUser(1)
			v := viewOf(fmt.Sprint("greedy", i), wire.Distribution, keys...)
			v.Measure, v.Boundaries = v.Name, slices.Collect(count(20*(i+1)))
			u.registerView(v)
			var tags []string
			for _, key := range keys {
				tags = append(tags, key+"="+strings.Repeat(`"`, 250))
			}
			u.test(ints(v.Measure, 1), tags...)
		})
	}
	s.Update(moment, func(u *Update) {
		u.SetUser(2)
		u.registerView(viewOf("mine", wire.Count))
		u.test(ints("m", 1))
	})
	families, err := s.Gather()
	assert.NilError(t, err)
	var page bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&page, f)
		assert.NilError(t, err)
	}
	if page.Len() > maxWrittenBytes || page.Len() < maxWrittenBytes/8 {
		t.Errorf("%d bytes are written", page.Len())
	}
	assert.Check(t, bytes.Contains(page.Bytes(), []byte("opencensus_mine_total 1")), "another user's view is not there")
	assert.Check(t, s.Counts().Lost[GatherNoRoom] != 0, "everything has room")
}
