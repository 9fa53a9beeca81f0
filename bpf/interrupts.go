package bpf

import (
	"math"
	"runtime"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// interruptsAt returns how the programs can tell that they run in an interrupt: the distance from the run queue of a
// CPU to where it counts its interrupts on x86. 0: they cannot.
func interruptsAt(kernel *btf.Spec) int32 {
	if runtime.GOARCH == "arm64" {
		return 1 // it is in the task
	}
	var perCPU *btf.Datasec
	if kernel.TypeByName(".data..percpu", &perCPU) != nil || !hasMember(kernel, "sched_entity", "cfs_rq") {
		return 0
	}
	offsets := make(map[string]int64)
	for _, v := range perCPU.Vars {
		if variable, ok := v.Type.(*btf.Var); ok {
			offsets[variable.Name] = int64(v.Offset)
		}
	}
	queue, found := offsets["runqueues"]
	count, own := offsets["__preempt_count"]
	if hot, isHot := offsets["pcpu_hot"]; !own && isHot { // from Linux 6.2 to 6.14
		var of *btf.Struct
		if kernel.TypeByName("pcpu_hot", &of) != nil {
			return 0
		}
		var at uint32
		if at, own = OffsetOf(of, "preempt_count"); own {
			count = hot + int64(at)
		}
	}
	distance := count - queue
	if !found || !own || distance < math.MinInt32 || distance > math.MaxInt32 {
		return 0
	}
	return int32(distance)
}

func hasMember(kernel *btf.Spec, name, member string) bool {
	var of *btf.Struct
	if kernel.TypeByName(name, &of) != nil {
		return false
	}
	_, found := OffsetOf(of, member)
	return found
}

// OffsetOf returns the offset of a member in bytes; the parts of its path may be in anonymous members.
func OffsetOf(t btf.Type, path string) (offset uint32, ok bool) {
	for name := range strings.SplitSeq(path, ".") {
		var at uint32
		if at, t, ok = member(t, name); !ok {
			return 0, false
		}
		offset += at
	}
	return offset, true
}

func member(t btf.Type, name string) (offset uint32, of btf.Type, ok bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), m.Type, true
		}
	}
	for _, m := range members {
		if m.Name != "" {
			continue
		}
		if offset, of, ok := member(m.Type, name); ok {
			return m.Offset.Bytes() + offset, of, true
		}
	}
	return 0, nil, false
}
