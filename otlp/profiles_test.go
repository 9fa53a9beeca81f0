package otlp

import (
	"fmt"
	"testing"
	"time"
)

// A receiver of profiles counts profiles: what it rejects is an estimate in samples, never more
// than there are.
func TestProfilesRejected(t *testing.T) {
	for _, c := range []struct {
		name              string
		samples, profiles int
		rejected          int64
		want              string
	}{
		{"none", 100, 3, 0, "sent_items=100 attempts{OK}=1"},
		{"one of three", 100, 3, 1, "sent_items=66 dropped_items{rejected}=34 attempts{OK}=1"},
		{"two of three", 100, 3, 2, "sent_items=33 dropped_items{rejected}=67 attempts{OK}=1"},
		{"all", 100, 3, 3, "dropped_items{rejected}=100 attempts{OK}=1"},
		{"a profile each", 4, 4, 3, "sent_items=1 dropped_items{rejected}=3 attempts{OK}=1"},
		{"some without samples", 2, 5, 1, "sent_items=1 dropped_items{rejected}=1 attempts{OK}=1"},
		{"exactly a part", 60, 20, 1, "sent_items=57 dropped_items{rejected}=3 attempts{OK}=1"},
		{"more than there are", 100, 3, 4, "dropped_items{rejected}=100 attempts{OK}=1 bad_response=1"},
		{"as if they were samples", 100, 1, 100, "dropped_items{rejected}=100 attempts{OK}=1 bad_response=1"},
		{"negative", 100, 3, -1, "sent_items=100 attempts{OK}=1 bad_response=1"},
		{"of none", 100, 0, 1, "sent_items=100 attempts{OK}=1 bad_response=1"},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			r := newReceiver(t, reply{response: partialResponse(c.rejected, "no")})
			l := lab1(t, r.destination("a"))
			l.Enqueue(NewProfilesBatch([]byte("x"), c.samples, c.profiles, time.Now()))
			l.after(time.Minute)
			l.wantCounts("a", Profiles, fmt.Sprintf("accepted_items=%d %s", c.samples, c.want))
			var lost uint64
			for _, e := range l.newEvents() {
				lost += e.Items
			}
			if s := l.Status()[0]; lost != s.Dropped.Sum() || len(r.got()) != 1 {
				t.Errorf("events have %d items, %d are dropped; %d requests", lost, s.Dropped.Sum(), len(r.got()))
			}
		})
	}
}
