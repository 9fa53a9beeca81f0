package feed_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"correlator/messaging/feed"
)

// A sampler feeds the samples of one interval. The example includes an agent, to show what it
// receives.
func ExampleClient() {
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "feed.sock") // the agent's --feed-socket
	agent, err := feed.Listen(path, &feed.Counters{})
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()

	sampler, err := feed.Dial(path)
	if err != nil {
		log.Fatal(err)
	}
	samples := []feed.Record{
		// The agent reads the context of this thread.
		{PID: 4711, TID: 4712, StackTraceID: [16]byte{0x60, 0xb4}, Count: 1},
		// The sampler includes the context of this one.
		{PID: 4711, TID: 4713, StackTraceID: [16]byte{0x4c, 0x93}, Count: 2,
			HasContext: true, TraceID: [16]byte{0x4b, 0xf9}, TransactionID: [8]byte{0x00, 0xf0}},
	}
	for _, sample := range samples {
		if err := sampler.Add(sample); err != nil {
			log.Print("samples lost: ", err)
		}
	}
	if err := sampler.Close(); err != nil { // or Flush, and continue
		log.Print("samples lost: ", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	agent.Serve(ctx, func(records []feed.Record) {
		for _, r := range records {
			fmt.Printf("thread %d: %d of stack %x…, context: %v\n", r.TID, r.Count, r.StackTraceID[:2], r.HasContext)
		}
		cancel()
	})
	// Output:
	// thread 4712: 1 of stack 60b4…, context: false
	// thread 4713: 2 of stack 4c93…, context: true
}
