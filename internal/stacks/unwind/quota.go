package unwind

import (
	"errors"
	"fmt"
	"math"

	"go.opentelemetry.io/ebpf-profiler/libpf"

	"correlator/internal/host/share"
	"correlator/internal/worker"
)

// errOverQuota: what a process needs is more than is left of its user's quota.
var errOverQuota = errors.New("the processes of its user may have no more")

// quota divides something among users: see [share.Budget].
type quota struct {
	of     string // what is divided
	budget *share.Budget[worker.User]
}

func newQuota(of string, capacity uint64) *quota {
	return &quota{of, share.NewBudget[worker.User](int(min(capacity, math.MaxInt)))}
}

// take adds n to what a user holds, or returns an errOverQuota.
func (q *quota) take(user worker.User, n uint64) error {
	if n > uint64(q.budget.Capacity()) || !q.budget.Take(user, int(n)) {
		return fmt.Errorf("%w %s: they have %d, all users %d of %d", errOverQuota, q.of, q.budget.Held(user),
			q.budget.Used(), q.budget.Capacity())
	}
	return nil
}

// give takes back what take has added.
func (q *quota) give(user worker.User, n uint64) { q.budget.Give(user, int(n)) }

// ownDescriptors is what a worker needs for itself: its tables, and a file that is read.
const ownDescriptors = 64

// processDescriptors is how many a process takes: its pidfd, its memory, and that again where
// process_vm_readv is refused.
const processDescriptors = 3

// maxFlowBytes is what a worker keeps of compiled methods: of one with 5 kB of code some 50 kB.
const maxFlowBytes = 32 << 20

// quotas are what a worker divides among the users of its processes.
type quotas struct {
	processes  *quota
	offsets    *quota // entries of offsetsMap
	ranges     *quota // entries of pidPageMap, without those that mark processes
	infos      *quota // entries of infosMap, which are never removed
	pages      *quota // entries of pagesMap
	tables     *quota // entries of filesMap
	tableBytes *quota // of these tables
	flowBytes  *quota // for compiled methods: beyond, what is known of one is found again for each place

	processData map[libpf.InterpreterType]*quota // entries of hotspotMap, goMap, and the tables of runtimeKinds
}

// newQuotas returns those of a worker that may have so many descriptors; entries returns the size
// of a table.
func newQuotas(descriptors uint64, entries func(table string) uint64) *quotas {
	processes := (max(descriptors, ownDescriptors) - ownDescriptors) / processDescriptors
	ranges := entries(pidPageMap)
	q := &quotas{
		processes:  newQuota("processes that are unwound", processes),
		offsets:    newQuota("files with a runtime", entries(offsetsMap)),
		ranges:     newQuota("ranges of mappings", ranges-min(ranges, processes)),
		infos:      newQuota("ways to unwind a frame", entries(infosMap)),
		pages:      newQuota("pages of files", entries(pagesMap)),
		tables:     newQuota("files' tables", entries(filesMap)),
		tableBytes: newQuota("bytes of files' tables", maxTableBytes),
		flowBytes:  newQuota("bytes for compiled methods", maxFlowBytes),
		processData: map[libpf.InterpreterType]*quota{
			libpf.HotSpot: newQuota("JVMs that are unwound", entries(hotspotMap)),
			libpf.Go:      newQuota("Go programs that are unwound", entries(goMap)),
		},
	}
	for _, kind := range runtimeKinds {
		q.processData[kind.of] = newQuota(kind.name+" processes that are unwound", maxRuntimes)
	}
	return q
}
