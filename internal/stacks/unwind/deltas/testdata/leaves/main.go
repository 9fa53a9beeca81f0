// Leaves calls functions of many forms, once each, between begin and end of work.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
)

var sink int

type shape interface{ area(n int) int }

type square struct{ side int }
type circle struct{ radius, pi [8]int }

//go:noinline
func (s square) area(n int) int { return s.side*s.side + n }

//go:noinline
func (c *circle) area(n int) int { return c.radius[n&7] * c.pi[3] }

// leaf has no frame.
//
//go:noinline
func leaf(n int) int {
	x := n
	for i := 0; i < 5; i++ {
		x = x*31 + i
	}
	return x
}

//go:noinline
func small(n int) int { return leaf(n) + leaf(n+1) }

//go:noinline
func large(n int) int {
	var room [4096]byte
	room[n&4095] = byte(n)
	return int(room[leaf(n)&4095]) + small(n)
}

//go:noinline
func huge(n int) int {
	var room [20_000]byte
	room[n&4095] = byte(n)
	return int(room[leaf(n)&4095]) + large(n)
}

//go:noinline
func early(n int) int {
	if n < 3 {
		return n
	}
	if n < 10 {
		return leaf(n)
	}
	return small(n) + early(n-7)
}

//go:noinline
func deferred(n int) (m int) {
	defer func() { m += leaf(n) }()
	return leaf(n + 1)
}

//go:noinline
func closures(n int) int {
	add := func(m int) int { n += m; return leaf(n) }
	apply := func(f func(int) int) int { return f(1) + f(2) }
	return apply(add)
}

//go:noinline
func work() int {
	n := huge(3) + early(40) + closures(5)
	for _, s := range []shape{square{n & 7}, &circle{}} {
		n += s.area(n)
	}
	numbers := map[string]int{}
	for i := 0; i < 6; i++ {
		numbers[strings.Repeat("key", i)] = i
	}
	keys := make([]string, 0, 1)
	for k := range numbers {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	n += bytes.IndexByte([]byte(strings.Join(keys, ",")), 'z') + strings.Index(strings.Join(keys, ""), "yke")
	n += len(fmt.Sprintf("%d %v %s", n, keys[1], strings.ToUpper(keys[2])))
	return n + deferred(7)
}

func main() {
	runtime.LockOSThread()
	sink = work()
	os.Exit(0)
}
