package receiver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// Spans are sent together, at once when a request is as large as it may be, and otherwise when the
// first of them have waited for a while. None is larger, but for one that is by itself.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // a timer of its own sends, too
		var sent []string
		r := newRequests(10, func(body []byte, spans int) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, fmt.Sprintf("%s %d", body, spans))
		})
		want := func(all ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			assert.Check(t, slices.Equal(sent, all), "sent %q, want %q", sent, all)
			sent = nil
		}
		r.flush()
		want()
		r.add([]byte("abcde"), 1)
		time.Sleep(requestAge / 2)
		r.add([]byte("fghij"), 2)
		want("abcdefghij 3")
		r.add([]byte("k"), 1)
		time.Sleep(requestAge / 2) // the time of those before is over
		want()
		r.add([]byte("lm"), 2)
		time.Sleep(requestAge / 2)
		want("klm 3")
		r.add([]byte("abcde"), 1)
		time.Sleep(requestAge / 2)
		r.add([]byte("fghijk"), 2) // does not fit
		want("abcde 1")
		time.Sleep(requestAge / 2)
		want()
		time.Sleep(requestAge / 2)
		want("fghijk 2")
		r.add([]byte("larger than any"), 4)
		want("larger than any 4")
		r.add([]byte("the end"), 1)
		r.flush()
		want("the end 1")
		time.Sleep(2 * requestAge)
		want()
	})
}
