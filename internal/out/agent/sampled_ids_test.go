package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/profile"
)

// byKind adds up the samples of stacks, for each kind of transaction, from a time on.
func byKind(report demo.Report, fromNs uint64) map[string]map[string]uint64 {
	found := make(map[string]map[string]uint64)
	for _, transaction := range report.Transactions {
		if transaction.BeginNs < fromNs {
			continue
		}
		if found[transaction.Kind] == nil {
			found[transaction.Kind] = make(map[string]uint64)
		}
		for text, n := range transaction.Stacks {
			found[transaction.Kind][text] += n
		}
	}
	return found
}

// What runs the same code has the same id: in another process, at other addresses, at another time,
// by another agent.
func TestSampledIDsAreStable(t *testing.T) {
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.Musl} {
		t.Run(flavor.String(), func(t *testing.T) {
			o := demo.Options{Flavor: flavor, Busy: 1, Gap: -1}
			first, second := demo.Start(t, o), demo.Start(t, o)
			assert.Assert(t, first.Loaded().Base != second.Loaded().Base, "two processes have the same layout")
			r := run(t, atRate(997))
			want := byKind(r.sampledReport(first, 400), 0)
			others := []map[string]map[string]uint64{byKind(r.sampledReport(second, 400), 0)}
			report := first.Report()
			first.Kill()
			r.stacks(report) // outlive their process
			others = append(others, byKind(r.sampledReport(demo.Start(t, o), 400), 0))
			r.end()
			run(t, atRate(997))
			restarted := second.Registration(2).ReadNs
			others = append(others, byKind(r.sampledReport(second, second.Report().Samples+400), restarted))

			for i, other := range others {
				for _, kind := range []string{"checkout", "search", "browse"} {
					if most, n := mostFrequent(want[kind]); n == 0 || other[kind][most] == 0 {
						t.Errorf("%s: stack %s has %d samples of one process and %d of process %d", kind, most, n,
							other[kind][most], i+1)
					}
					if most, n := mostFrequent(other[kind]); n == 0 || want[kind][most] == 0 {
						t.Errorf("%s: stack %s has %d samples of process %d and none of the first", kind, most, n, i+1)
					}
				}
			}
		})
	}
}

// Code of a library that was loaded after the process was probed has the id of the library's from
// the first sample on.
func TestSampledLibraryLoadedLater(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1})
	r := run(t, atRate(997))
	r.sampledReport(p, 1000) // of half a second: a look that was made before is no hindrance to another
	assert.Assert(t, len(executable(t, p, "libm.so.6")) == 0, "the library is there already")
	p.Borrow("libm.so.6", "erfc")
	report := r.sampledReport(p, p.Report().Samples+600)
	ranges := executable(t, p, "libm.so.6")
	var named uint64
	stacks := r.stacks(report)
	for _, transaction := range report.Transactions {
		for text, n := range transaction.Stacks {
			for _, frame := range stacks[text] {
				if frame.Kind() == profile.NativeFrame && filepath.Base(frame.File.Path) == "libm.so.6" {
					named += n
				}
				if frame.Kind() == profile.AnonymousFrame && ranges.contain(frame.Address) {
					t.Errorf("stack %s has an anonymous frame in the library: %v", text, stacks[text])
				}
			}
		}
	}
	assert.Check(t, named != 0, "no sample has a frame in the library")
	r.end()
	r.sampledAdded()
	r.stacksTrue(p, report)
}

type addressRanges [][2]uint64

func (r addressRanges) contain(addr uint64) bool {
	for _, bounds := range r {
		if bounds[0] <= addr && addr < bounds[1] {
			return true
		}
	}
	return false
}

// executable is where a process has mapped the code of a file.
func executable(t *testing.T, p *demo.Process, name string) (found addressRanges) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
	assert.NilError(t, err)
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		var rights string
		_, err := fmt.Sscanf(line, "%x-%x %s", &start, &end, &rights)
		assert.NilError(t, err)
		if strings.Contains(rights, "x") && strings.Contains(line, name) {
			found = append(found, [2]uint64{start, end})
		}
	}
	return found
}

func mostFrequent(samples map[string]uint64) (stack string, n uint64) {
	for text, m := range samples {
		if m > n {
			stack, n = text, m
		}
	}
	return stack, n
}
