// Package throughput measures a broker and its guests, each in a process of its own, as they are
// used. What it measures are benchmarks; the package itself has the types that they transmit.
//
//	go test -run '^$' -bench . -benchtime 1x ./dots/internal/throughput
//
// The publisher never is more than 200,000 transmissions ahead of the subscriber, which publishes
// its progress on the same bus: what is measured is what goes through, and not what fits into a
// queue.
package throughput

//go:generate go run correlator/dots/internal/gen -package throughput bench.dots
