package bpf

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"os"
	"runtime"
)

// addressMask has the bits that addresses of code in processes may have. On arm64 the others of a
// return address may be a signature (pointer authentication): those above the addresses that the
// kernel is built for, CONFIG_ARM64_VA_BITS.
func addressMask() uint64 {
	if runtime.GOARCH != "arm64" {
		return math.MaxUint64
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	return maskOf(maps)
}

// maskOf returns the bits of the addresses in /proc/PID/maps. The stack lies at the end of them. It is
// below 48 bits also where there are 52: more are for processes that ask for it by address.
func maskOf(maps []byte) uint64 {
	const most = 1<<48 - 1
	var mask uint64
	for line := range bytes.Lines(maps) {
		var start, end uint64
		if _, err := fmt.Sscanf(string(line), "%x-%x ", &start, &end); err == nil && end-1 <= most {
			mask = max(mask, 1<<bits.Len64(end-1)-1)
		}
	}
	if mask == 0 {
		return most
	}
	return mask
}
