package access

import (
	"bytes"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/memread"
	"correlator/procscan"
)

// Whatever a worker answers that was taken over, the agent takes no more than it asked for, and does
// not panic.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{answerOK, 8, 0, 0, 0, memoryComplete, 4, 0, 0, 0, memoryUnmapped,
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte{answerOK, 9, 0, 0, 0, memoryComplete, 0, 0, 0, 0, memoryGone, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{answerOK, 255, 255, 255, 255, memoryUnmapped, 0, 0, 0, 0, memoryFailed})
	f.Add([]byte("\x00{\"Slots\":[{\"Error\":{\"Text\":\"x\",\"Is\":[-1,0,99],\"Errno\":7}}]}"))
	f.Add([]byte("\x01{\"Text\":\"no\",\"Is\":[0,1],\"Errno\":2}"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		reqs := []memread.Request{{Buf: make([]byte, 8)}, {Buf: make([]byte, 16)}}
		if len(answer) > 0 && answer[0] == answerOK {
			err := decodeMemory(answer[1:], 0, len(reqs), func(i int) (int, *memread.Request) { return 0, &reqs[i] })
			for i := range reqs {
				n, size := reqs[i].N, len(reqs[i].Buf)
				assert.Check(t, n >= 0 && n <= size && (err != nil || reqs[i].Err != nil || n == size),
					"range %d: %d bytes, %v", i, n, err)
			}
		}
		var files []parsed
		var variables []variable
		var read slots
		var place procscan.Place
		var env environment
		for _, result := range []any{&files, &variables, &read, &place, &env} {
			if err := decodeAnswer(answer, result); err != nil {
				_ = err.Error()
			}
		}
		for i := range read.Slots {
			_ = read.Slots[i].decoded(time.Time{})
		}
	})
}

// A request that nobody sends is refused, and none asks for more than an answer holds.
func FuzzMemoryRequest(f *testing.F) {
	f.Add(bytes.Repeat([]byte{1}, memoryRangeBytes))
	f.Add(append(make([]byte, memoryRangeBytes-4), 255, 255, 255, 255))
	f.Add(make([]byte, memoryRangeBytes-1))
	f.Fuzz(func(t *testing.T, message []byte) {
		reads, err := decodeMemoryRequest(message)
		total := 0
		for i := range reads {
			total += len(reads[i].Buf)
		}
		assert.Check(t, total <= maxMemoryBytes && (err != nil || len(reads)*memoryRangeBytes == len(message)),
			"%d reads of %d bytes for %d, %v", len(reads), total, len(message), err)
	})
}
