// Package console has what is written to the console of a guest of internal/lab/kernels for the program
// on the host that reads it: by process 1 of the guest, and by tests in it.
package console

import (
	"encoding/json"
	"time"
)

// Prefix distinguishes events from what the kernel and the firmware print. The first byte is a
// control character that ends whatever precedes it on its line.
const Prefix = "\x1ekernels "

// A Stop is the event that has the machine stopped for a while. One of the fields is not zero.
type Stop struct {
	Stall time.Duration `json:",omitempty"` // its clocks go on
	Pause time.Duration `json:",omitempty"` // they are stopped, too
}

// Line returns an event as what is to be written, with one write: a line of JSON after Prefix.
func Line(event any) []byte {
	text, err := json.Marshal(event)
	if err != nil {
		panic(err) // there is no such event
	}
	return append(append([]byte(Prefix), text...), '\n')
}
