// Show is the backend of the demo: it receives OTLP on a Unix socket, and when it is terminated it
// prints what the transaction with the most samples of a service did: its stacks, found by their
// ids, with their frames. As backends do, it finds the symbols of a frame by the id of its file, if
// it was given that file; the path of a frame is that in the process where the file was first seen,
// which may be in another container.
//
//	show SOCKET SERVICE FILE...
package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"path"
	"slices"
	"syscall"

	"correlator/internal/backend"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: show SOCKET SERVICE FILE...")
		os.Exit(2)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	files := make(map[string]string)
	for _, path := range os.Args[3:] {
		id, err := backend.FileID(path)
		if err != nil {
			log.Fatal(err)
		}
		files[id] = path
	}
	b, err := backend.Open("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	<-ended
	b.Close()
	if err := cmp.Or(b.Err(), show(os.Stdout, b.Profiles(), os.Args[2], files)); err != nil {
		log.Fatal(err)
	}
}

// show prints the transaction of a service with the most samples; files are paths by id.
func show(w io.Writer, profiles backend.Profiles, service string, files map[string]string) error {
	samples := make(map[string]uint64) // by trace
	var all uint64
	for sample, n := range profiles.Samples {
		all += n
		if sample.Service == service && sample.TraceID != "" {
			samples[sample.TraceID] += n
		}
	}
	if len(samples) == 0 {
		return fmt.Errorf("of %d samples none is of a transaction of %s", all, service)
	}
	most := slices.MaxFunc(slices.Collect(maps.Keys(samples)), func(a, b string) int {
		return cmp.Or(cmp.Compare(samples[a], samples[b]), cmp.Compare(a, b))
	})
	stacks, one := make(map[string]uint64), backend.Sample{}
	for sample, n := range profiles.Samples {
		if sample.TraceID == most {
			stacks[sample.Stack] += n
			one = sample
		}
	}
	fmt.Fprintf(w,
		"  %d samples with %d different stacks arrived. In trace %s,\n  span %s of %s (%s, process %s), thread %s was seen %d times:\n",
		all, len(profiles.Stacks), most, one.SpanID, one.Service, one.Environment, one.PID, one.Thread, samples[most])
	ids := slices.SortedFunc(maps.Keys(stacks), func(a, b string) int {
		return cmp.Or(cmp.Compare(stacks[b], stacks[a]), cmp.Compare(a, b))
	})
	for i, id := range ids {
		fmt.Fprintf(w, "\n  stack %s, computed from its frames: %d samples\n", id, stacks[id])
		for _, frame := range profiles.Stacks[id] {
			fmt.Fprintf(w, "    %-7s %-22s %s+%#x\n", frame.Type, function(files[frame.FileID], frame.Address),
				path.Base(cmp.Or(frame.File, "anonymous")), frame.Address)
		}
		if i == 2 && len(ids) > 3 {
			fmt.Fprintf(w, "\n  and %d more stacks\n", len(ids)-3)
			break
		}
	}
	return nil
}

// function is what the symbol tables of a file call an address.
func function(path string, address uint64) string {
	file, err := elf.Open(path)
	if err != nil {
		return "?"
	}
	defer file.Close()
	symbols, _ := file.Symbols() // one of the tables may be missing
	dynamic, _ := file.DynamicSymbols()
	for _, s := range append(symbols, dynamic...) {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && address >= s.Value && address < s.Value+s.Size {
			return s.Name
		}
	}
	return "?"
}
