// Busygo is busy in functions with known names, in Go's runtime too.
package main

import (
	"os"
	"runtime"
)

var kept []byte

//go:noinline
func inner(n int) (total int) {
	for i := range n {
		total += i * i
		if i%1000 == 0 {
			kept = make([]byte, 4096)
		}
	}
	return total
}

//go:noinline
func middle(n int) int { return inner(n) + len(kept) }

func main() {
	_, _ = os.Stdout.WriteString("ready\n")
	for {
		if middle(1_000_000) < 0 {
			runtime.GC()
		}
	}
}
