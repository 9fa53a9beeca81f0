package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"correlator/bpf"
	"correlator/internal/attach/process"
)

// AddOBI adds that OBI has contexts of processes that are listed, and returns a line about others; empty: there are
// none.
func AddOBI(path string, processes []Process) (string, error) {
	known, err := bpf.OBIProcesses(path)
	if err != nil || len(known) == 0 {
		return "", err
	}
	for i := range processes {
		p := &processes[i]
		if known[p.PID] {
			p.Contexts = append(slices.Clip(p.Contexts), process.OBI)
			delete(known, p.PID)
		}
	}
	return describeOBI(slices.Sorted(maps.Keys(known))), nil
}

// listedOBI is how many processes describeOBI names.
const listedOBI = 10

func describeOBI(pids []int) string {
	if len(pids) == 0 {
		return ""
	}
	named := strings.Trim(fmt.Sprint(pids[:min(len(pids), listedOBI)]), "[]")
	if more := len(pids) - listedOBI; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return `OBI has contexts of others, which "run --processes all" and "record --pid" read: ` + named
}
