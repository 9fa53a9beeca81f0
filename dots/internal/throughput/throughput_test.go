package throughput

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// One publisher, the broker and one subscriber: transmissions per second.
func BenchmarkTransmissions(b *testing.B) {
	for name, cached := range map[string]bool{"uncached": false, "cached": true} {
		b.Run(name, func(b *testing.B) {
			const count = 10_000_000
			var sum float64
			for range b.N {
				server := start(b, role{Name: "broker"})
				uri := server.line()
				subscriber := start(b, role{Name: "subscriber", Broker: uri, Cached: cached, Count: count})
				subscriber.line()
				publisher := start(b, role{Name: "publisher", Broker: uri, Cached: cached, Count: count})
				sum += subscriber.number()
				publisher.end()
				subscriber.end()
				server.end()
			}
			b.ReportMetric(sum/float64(b.N), "transmissions/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// A publication that comes back to its guest, both processes on one CPU; and for comparison bytes
// that two processes exchange without DOTS.
func BenchmarkRoundTrip(b *testing.B) {
	if _, err := exec.LookPath("taskset"); err != nil {
		b.Skip(err)
	}
	for name, roles := range map[string][2]string{"dots": {"broker", "echo"}, "bare": {"mirror", "bare"}} {
		b.Run(name, func(b *testing.B) {
			var sum, fastest float64
			for range b.N {
				server := start(b, role{Name: roles[0]}, "taskset", "-c", "0")
				guest := start(b, role{Name: roles[1], Broker: server.line(), Count: 200_000}, "taskset", "-c", "0")
				sum += guest.number()
				fastest += guest.number()
				guest.end()
				server.end()
			}
			b.ReportMetric(sum/float64(b.N), "µs/roundtrip")
			b.ReportMetric(fastest/float64(b.N), "µs-fastest")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// Cached objects for a guest that joins late.
func BenchmarkReplay(b *testing.B) {
	const count = 100_000
	server := start(b, role{Name: "broker"})
	uri := server.line()
	start(b, role{Name: "filler", Broker: uri, Count: count}).line()
	var sum float64
	for b.Loop() {
		joiner := start(b, role{Name: "joiner", Broker: uri, Count: count})
		sum += joiner.number()
		joiner.end()
	}
	b.ReportMetric(sum/float64(b.N), "objects/s")
	b.ReportMetric(0, "ns/op")
}

// The memory of "correlator dots serve" with guests that do nothing.
func BenchmarkIdleGuests(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "correlator")
	if out, err := exec.Command("go", "build", "-o", binary, "correlator/cmd/correlator").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for range b.N {
		cmd := exec.Command(binary, "dots", "serve", "--log-format", "json", "--dots-endpoint", "tcp://127.0.0.1:0")
		log, err := cmd.StderrPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		lines := bufio.NewReader(log)
		line, err := lines.ReadBytes('\n')
		if err != nil {
			b.Fatal(err)
		}
		var listening struct{ Endpoint string }
		if err := json.Unmarshal(line, &listening); err != nil {
			b.Fatal(err)
		}
		go func() { // what else is logged is of no interest
			for err == nil {
				_, err = lines.Discard(1)
			}
		}()
		server := &process{b: b, cmd: cmd}
		b.ReportMetric(server.resident(), "MB-before")
		start(b, role{Name: "idle", Broker: listening.Endpoint, Count: 1000}).line()
		b.ReportMetric(server.resident(), "MB")
	}
	b.ReportMetric(0, "ns/op")
}
