// A program of known truth in Go: see the documentation of package truth.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// publish makes the process one that takes part: by the process context of OpenTelemetry.
func publish() {
	memfdCreate := map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	name := []byte("OTEL_CTX\x00")
	memory, _, errno := syscall.Syscall(memfdCreate, uintptr(unsafe.Pointer(&name[0])), 1, 0)
	if errno != 0 {
		panic(errno)
	}
	if err := syscall.Ftruncate(int(memory), 4096); err != nil {
		panic(err)
	}
	header, err := syscall.Mmap(int(memory), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	address := uintptr(unsafe.Pointer(&header[0]))
	payload := header[64:][:copy(header[64:], "\x0a\x1c\x0a\x1a\x0a\x0cservice.name\x12\x0a\x0a\x08truth-go")]
	copy(header, name[:8])
	binary.LittleEndian.PutUint32(header[8:], 2)
	binary.LittleEndian.PutUint32(header[12:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(header[24:], uint64(address)+64)
	var now syscall.Timespec
	const clockBoottime = 7
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	binary.LittleEndian.PutUint64(header[16:], uint64(now.Nano()))
}

var sink int

//go:noinline
func hash(n int) int {
	x := n
	for i := 0; i < n; i++ {
		x = x*31 + i
	}
	return x
}

//go:noinline
func price() { sink += hash(2_000_000) }

//go:noinline
func reserve() { sink += hash(1_000_000) + 1 }

//go:noinline
func tiny(n int) int { return n*31 + 7 }

//go:noinline
func count() {
	x := 0
	for i := 0; i < 1_500_000; i++ {
		x = tiny(x + i)
	}
	sink += x
}

//go:noinline
func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

//go:noinline
func recurse() { sink += fib(25) }

type shape interface{ area(n int) int }

type square struct{ side int }

//go:noinline
func (s square) area(n int) int { return s.side*s.side + n }

var shapes = []shape{square{3}, square{4}}

//go:noinline
func interfaces() {
	x := 0
	for i := 0; i < 1_000_000; i++ {
		x += shapes[i&1].area(x)
	}
	sink += x
}

var from, to [1 << 16]byte

//go:noinline
func copies() {
	for i := 0; i < 500; i++ {
		copy(to[:], from[i:])
		sink += int(to[i])
	}
}

//go:noinline
func finds() {
	for i := 0; i < 800; i++ {
		sink += bytes.IndexByte(from[i:], 'z')
	}
}

type byValue []int

func (b byValue) Len() int           { return len(b) }
func (b byValue) Less(i, j int) bool { return b[i] < b[j] }
func (b byValue) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

var numbers [10_000]int

//go:noinline
func sorting() {
	for i := range numbers {
		numbers[i] = int(uint32(i) * 2654435761 >> 8)
	}
	sort.Sort(byValue(numbers[:]))
	sink += numbers[7]
}

//go:noinline
func clocks() {
	for i := 0; i < 50_000; i++ {
		sink += int(time.Now().UnixNano())
	}
}

//go:noinline
func formats() {
	for i := 0; i < 8_000; i++ {
		sink += len(fmt.Sprintf("%d %s %5.2f %x", i, "text", 3.14*float64(i), sink))
	}
}

var words = map[string]int{}

//go:noinline
func lookups() {
	for i := 0; i < 200; i++ {
		for word := range words {
			sink += words[word]
		}
	}
}

//go:noinline
func cpuTime() int64 {
	var now syscall.Timespec
	const threadCPU = 3
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

type phase struct {
	name string
	run  func()
	took int64
}

var phases = []phase{
	{"price", price, 0}, {"reserve", reserve, 0}, {"count", count, 0}, {"recurse", recurse, 0},
	{"interfaces", interfaces, 0}, {"copies", copies, 0}, {"finds", finds, 0}, {"sorting", sorting, 0},
	{"clocks", clocks, 0}, {"formats", formats, 0}, {"lookups", lookups, 0},
}

//go:noinline
func work(end chan os.Signal) {
	for {
		select {
		case <-end:
			return
		default:
		}
		for i := range phases {
			before := cpuTime()
			phases[i].run()
			phases[i].took += cpuTime() - before
		}
	}
}

func main() {
	runtime.LockOSThread()
	for i := 0; i < 1000; i++ {
		words[strings.Repeat("w", i%7)+fmt.Sprint(i)] = i
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	publish()
	fmt.Println("ready")
	work(end)
	truth := map[string]interface{}{}
	all, inclusive, took := 0.0, map[string]float64{}, map[string]float64{}
	for _, p := range phases {
		all += float64(p.took)
	}
	for _, p := range phases {
		took[p.name] = float64(p.took) / all
		inclusive["main."+p.name] = took[p.name]
	}
	truth["inclusive"] = inclusive
	truth["self"] = map[string]float64{"main.hash": took["price"] + took["reserve"]}
	truth["work"], truth["clock"] = "main.work", "main.cpuTime"
	truth["above"] = map[string][]string{
		"main.hash": {"main.price", "main.reserve"}, "main.tiny": {"main.count"}, "main.fib": {"main.recurse"},
		"main.square.area": {"main.interfaces"}, "main.(*square).area": {"main.interfaces"},
		"main.byValue.Less": {"main.sorting"}, "main.(*byValue).Less": {"main.sorting"},
		"main.byValue.Swap": {"main.sorting"}, "main.(*byValue).Swap": {"main.sorting"},
	}
	_ = json.NewEncoder(os.Stdout).Encode(truth)
}
