package dotstool

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/client"
)

// firstWrite tells of the first Write.
type firstWrite struct {
	bytes.Buffer
	once sync.Once
	done chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.done) })
	return w.Buffer.Write(p)
}

// The goodbye of the broker is a normal end, of which there is a note. It is an error if more was to
// come.
func TestGoodbye(t *testing.T) {
	commands := map[string]func(w *Watch, running *firstWrite) error{
		// What is written first when all that the broker had has arrived: the note of a type that it
		// does not know, or the table.
		"watch JSON": func(w *Watch, running *firstWrite) error {
			w.Notes = running
			return w.JSON(t.Context(), io.Discard)
		},
		"record": func(w *Watch, running *firstWrite) error {
			r := Record{Guest: w.Guest, File: "-", Types: w.Types, Count: w.Count, Stdout: io.Discard, Notes: running}
			return r.Run(t.Context())
		},
		"watch": func(w *Watch, running *firstWrite) error {
			w.Notes = &running.Buffer
			return w.Table(t.Context(), running)
		},
	}
	for name, run := range commands {
		for count, want := range map[int]error{0: nil, 1: nil, 2: client.ErrGoodbye} {
			uri, stop := startBroker(t)
			running := &firstWrite{done: make(chan struct{})}
			w := &Watch{Guest: Guest{Endpoint: uri}, Types: []string{"Room", "Garden"}, Count: count}
			ended := make(chan error, 1)
			go func() { ended <- run(w, running) }()
			<-running.done
			stop()
			err := <-ended
			assert.Check(t, errors.Is(err, want), "%s --count %d: %v", name, count, err)
			assert.Check(t, strings.Contains(running.String(), "the broker said goodbye\n") == (count == 0),
				"%s --count %d: %q", name, count, running)
		}
	}
}
