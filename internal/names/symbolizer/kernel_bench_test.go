package symbolizer

import (
	"testing"

	"correlator/profile"
)

// Names of frames of the kernel, as the agent reads them.
func BenchmarkReadKernel(b *testing.B) {
	vmlinux := &profile.File{ID: profile.FileID{1}, Kind: profile.KernelFrame, Path: VMLinuxPath}
	var frames []profile.Frame
	for i := range uint64(20) {
		frames = append(frames, profile.Frame{File: vmlinux, Address: i << 19})
	}
	b.ReportAllocs()
	kernel := NewKernel("/proc", "/sys")
	for b.Loop() {
		if _, err := kernel.Read(b.Context(), frames); err != nil {
			b.Fatal(err)
		}
	}
}
