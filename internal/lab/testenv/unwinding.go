package testenv

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// NeedUnwinding ends the test unless the kernel can run the unwinding engine.
func NeedUnwinding(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	if errors.Is(features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnTaskPtRegs), ebpf.ErrNotSupported) {
		Missing(t, "needs Linux 5.15: the unwinding engine takes the eBPF helper bpf_task_pt_regs")
	}
}
