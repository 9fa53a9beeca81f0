// Command golabels has goroutines that take turns, each in a function of its own, with labels that say
// which: of the goroutines in the function burnN, the trace id ends in N. From the first
// byte of its input on, some sleep in between, with labels, and others poll, without. It ends with its input,
// and prints how long those of each trace have slept, ns: at least, by what they had asked for, and at most,
// by a clock.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"time"
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

var burners = [...]func(int) int{burn0, burn1, burn2, burn3}

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
			if turn%8 == 0 {
				poll()
			}
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
			sleep(n)
			pprof.SetGoroutineLabels(bare)
		default:
			pprof.Do(bare, labels(n), func(context.Context) { burners[n](size) })
		}
		runtime.Gosched()
	}
}

const napTime = 2 * time.Millisecond

// slept are of each trace: at least, at most.
var slept [len(burners)][2]atomic.Int64

// rests is how many sleep; below 0: none may begin to.
var rests atomic.Int64

const never = -1 << 32

func sleep(n int) {
	defer rests.Add(-1)
	if rests.Add(1) <= 0 {
		return
	}
	began := time.Now()
	left := syscall.NsecToTimespec(int64(napTime))
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
	slept[n][1].Add(int64(time.Since(began)))
	slept[n][0].Add(int64(napTime))
}

func poll() {
	left := syscall.NsecToTimeval(int64(napTime))
	_, _ = syscall.Select(0, nil, nil, nil, &left)
}

func main() {
	rests.Store(never)
	for n := range burners {
		for i := 0; i < 3; i++ {
			go run(n)
		}
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		rests.Add(-never)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	for rests.Add(never); rests.Load() > never; {
		time.Sleep(time.Millisecond)
	}
	for n := range slept {
		fmt.Println(slept[n][0].Load(), slept[n][1].Load())
	}
}
