// Show prints what transactions did, for the demo.
//
//	show -socket PATH -stacks SERVICE [FILE...]
//	show -recording FILE -methods PROCESS -contexts PROCESS -rate HZ
//
// With -socket it is a backend: it receives OTLP on a Unix socket, and when it is terminated it prints
// of a service's transaction with the most samples the stacks, found by their ids,
// with their frames. As backends do, it finds the symbols of a frame by the id of its file, if it was
// given that file; the path of a frame is that in the process where the file was first seen, which
// may be in another container.
//
// With -recording it reads what record has written. A PROCESS is the pid of one and the path of a file with its
// events, separated by a colon.
//
// -methods prints of a process's transaction with the most samples the methods, beside the
// CPU time that the process says they took, in its events. It fails when one of them is missing.
//
// -contexts prints the transactions of a process that publishes by OpenTelemetry's standards, beside
// what it says of them, and the methods of the one of which most samples have any. It fails when
// something is missing, or is not what the process says.
package main

import (
	"cmp"
	"debug/elf"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"correlator/internal/lab/backend"
)

func main() {
	log.SetFlags(0)
	socket := flag.String("socket", "", "receive OTLP on a socket at this `path`")
	stacks := flag.String("stacks", "", "print stacks of this `service`")
	recording := flag.String("recording", "", "read a `file` that record has written")
	var methods, contexts demoProcess
	flag.Var(&methods, "methods", "print methods of this `process`")
	flag.Var(&contexts, "contexts", "print the transactions of this `process`")
	rate := flag.Int("rate", 0, "samples of every CPU per second")
	flag.Parse()
	if (*socket == "") == (*recording == "") || *recording != "" && *rate <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	var err error
	if *recording != "" {
		err = showRecording(os.Stdout, *recording, methods, contexts, *rate)
	} else {
		err = serve(*socket, *stacks, flag.Args())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// demoProcess is a process and the path of its events, as a flag: PID:PATH.
type demoProcess struct {
	pid    int64
	events string
}

func (p *demoProcess) String() string { return "" }

func (p *demoProcess) Set(text string) (err error) {
	pid, events, _ := strings.Cut(text, ":")
	p.events = events
	p.pid, err = strconv.ParseInt(pid, 10, 64)
	return err
}

// serve receives until it is terminated, then prints.
func serve(socket, stacks string, paths []string) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	files := make(map[string]string)
	for _, path := range paths {
		id, err := backend.FileID(path)
		if err != nil {
			return err
		}
		files[id] = path
	}
	b, err := backend.Open("unix", socket)
	if err != nil {
		return err
	}
	<-ended
	b.Close()
	if err := b.Err(); err != nil {
		return err
	}
	return show(os.Stdout, b.Profiles(), stacks, files)
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
			where := fmt.Sprintf("%s+%#x", path.Base(cmp.Or(frame.File, "anonymous")), frame.Address)
			if frame.File == "" && frame.Function != "" { // its address is none
				where = fmt.Sprintf("%s:%d", cmp.Or(frame.SourceFile, "?"), frame.Line)
			}
			name := frame.Function
			if name == "" {
				name = function(files[frame.FileID], frame.Address)
			}
			fmt.Fprintf(w, "    %-7s %-22s %s\n", frame.Type, name, where)
		}
		if i == 2 && len(ids) > 3 {
			fmt.Fprintf(w, "\n  and %d more stacks\n", len(ids)-3)
			break
		}
	}
	return nil
}

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
