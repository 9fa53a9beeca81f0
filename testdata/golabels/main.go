// Command golabels has goroutines that take turns, each in a function of its own, with labels that say
// which: of the goroutines in the function burnN, the trace id ends in N. It ends with its input.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
)

//go:noinline
func burn1(n int) (s int) {
	for i := 0; i < n; i++ {
		s = s*3 + i
	}
	return s
}

//go:noinline
func burn2(n int) (s int) {
	for i := 0; i < n; i++ {
		s = s*5 + i
	}
	return s
}

//go:noinline
func burn3(n int) (s int) {
	for i := 0; i < n; i++ {
		s = s*7 + i
	}
	return s
}

//go:noinline
func burn0(n int) (s int) { // without labels
	for i := 0; i < n; i++ {
		s = s*9 + i
	}
	return s
}

var burners = []func(int) int{burn0, burn1, burn2, burn3}

func labels(n int) pprof.LabelSet {
	return pprof.Labels("other", "value", "trace_id", fmt.Sprintf("%032d", n), "span_id", fmt.Sprintf("%016d", n))
}

// run burns in turns: some calls with labels that it sets and some with those of a goroutine of its own.
func run(n int) {
	bare := context.Background()
	for turn := 0; ; turn++ {
		size := 1000 << (turn % 4)
		switch {
		case n == 0:
			burn0(size)
		case turn%8 == 0:
			done := make(chan bool)
			pprof.Do(bare, labels(n), func(context.Context) {
				go func() { // it has the labels of who begins it
					burners[n](size)
					close(done)
				}()
			})
			<-done
		case turn%8 == 1:
			pprof.SetGoroutineLabels(pprof.WithLabels(bare, labels(n)))
			burners[n](size)
			pprof.SetGoroutineLabels(bare)
		default:
			pprof.Do(bare, labels(n), func(context.Context) { burners[n](size) })
		}
		runtime.Gosched()
	}
}

func main() {
	for n := range burners {
		for i := 0; i < 3; i++ {
			go run(n)
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
