//go:build soak

package keep

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// What is kept takes no more of the heap than what it is counted as, whatever it is most of; and it is not
// counted as several times as much.
func TestSoakMemory(t *testing.T) {
	number := func(i int) (id [8]byte) {
		binary.BigEndian.PutUint64(id[:], uint64(i+1)*0x9e3779b97f4a7c15)
		return id
	}
	one, main := resource("a", 1), stackOf("main")
	begins := []profile.Frame{main.Frames[0]}
	for what, newOne := range map[string]func(i int) *profile.Sample{
		"entries": func(i int) *profile.Sample {
			s := newSample(one, i%10, begin, main)
			s.SpanID = number(i)
			return s
		},
		"transactions": func(i int) *profile.Sample { return newSample(one, i, begin, main) },
		"attributes": func(i int) *profile.Sample {
			s := newSample(one, i, begin, main)
			s.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "key", Value: fmt.Sprintf("%0500d", i)}})
			return s
		},
		"threads": func(i int) *profile.Sample {
			s := newSample(one, i, begin, main)
			s.TID, s.Thread = i, fmt.Sprintf("thread-%07d", i)
			return s
		},
		"stacks of old frames": func(i int) *profile.Sample {
			s := newSample(one, i%10, begin, main)
			s.Stack = &profile.Stack{Frames: begins}
			s.Stack.ID = profile.StackTraceID{byte(i), byte(i >> 8), byte(i >> 16)}
			return s
		},
		"frames": func(i int) *profile.Sample {
			return newSample(one, i%10, begin, stackOf(fmt.Sprintf("Class%d.method", i)))
		},
		"processes": func(i int) *profile.Sample { return newSample(resource("a", i), i, begin, main) },
		"names of processes": func(i int) *profile.Sample {
			r := resource("a", i)
			r.Name, r.ExecutablePath = fmt.Sprintf("%01000d", i), fmt.Sprintf("%04000d", i)
			r.Environment, r.ContainerID = strings.Repeat("e", i%300), strings.Repeat("c", i%64)
			r.Version, r.SDKName = fmt.Sprintf("%02000d", i), fmt.Sprintf("%0500d", i)
			return newSample(r, i, begin, main)
		},
		"owners": func(i int) *profile.Sample {
			return newSample(resource(fmt.Sprintf("container-%d", i), i), i, begin, main)
		},
		"waits": func(i int) *profile.Sample {
			w := byHolder(1)
			w.Waker.TID = i
			return newWait(one, i, begin, main, w)
		},
		"slices": func(i int) *profile.Sample {
			return newSample(one, i, begin.Add(time.Duration(i)*time.Millisecond), main)
		},
	} {
		t.Run(what, func(t *testing.T) {
			const limit = 2 * MinBytes
			before := heap()
			s := NewStore(10*time.Millisecond*slicesOfPeriod, limit)
			for i := 0; s.stats.Evicted == 0 && s.stats.Expired == 0 && s.stats.Waits.Evicted == 0 &&
				i < 1_000_000; i++ {
				if i%1000 == 0 && s.bytes > limit*3/4 {
					break
				}
				sample := newOne(i)
				s.Add(sample, sample.At)
			}
			for _, ended := range []bool{false, true} {
				if ended {
					for _, o := range s.owners {
						for _, slice := range slices.Concat(o.slices, o.waits.slices) {
							s.end(o, slice, begin.UnixNano())
						}
					}
				}
				took, counted := int(heap())-int(before), s.Stats().Bytes
				t.Logf("heap %d KiB, counted %d KiB, ended %v", took>>10, counted>>10, ended)
				assert.Check(t, took <= counted && counted <= 4*took,
					"%d KiB of the heap are counted as %d KiB, ended: %v", took>>10, counted>>10, ended)
			}
			runtime.KeepAlive(s)
		})
	}
}

// An answer takes no more memory until it is sent than is reserved for it, garbage included.
func TestSoakMemoryOfAnswer(t *testing.T) {
	s, trace, now := ofGrowingTexts(100_000)
	for _, q := range []Query{{ID: trace}, {}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := json.Marshal(answer(t, s, q, now)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("an answer takes %d KiB, bound %d KiB", allocated>>10, answerMemory>>10)
		if allocated > answerMemory {
			t.Error("out of bounds")
		}
	}
}
