package unwind

import (
	"encoding/binary"
	"io"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// openPython corrects what the engine has found of a process of CPython.
func (s *server) openPython(t *target) error {
	return changeData(s.handler, libpf.Python, t.PID(), func(info *support.PyProcInfo) {
		correctPython(info, t.memory())
	})
}

// correctPython is openPython with the process's memory.
func correctPython(info *support.PyProcInfo, memory io.ReaderAt) {
	const version313, version314, tag = 0x30d, 0x30e, 1
	if info.Version >= version313 && info.TsdInfo.Multiplier != 0 && isThreadKey(memory, info.AutoTLSKeyAddr) {
		// The variable with the thread's state is cleared while native code runs without the interpreter's lock. What
		// pthread_getspecific returns, as before 3.13, is not.
		info.Tls_offset = 0
	}
	if info.Version == version314 && info.NoneStructAddr != 0 {
		info.NoneStructAddr |= tag // as references in frames have it
	}
}

// maxThreadKeys bounds keys of pthread_getspecific in glibc. musl has 128.
const maxThreadKeys = 1024

// isThreadKey reports whether CPython has a key of pthread_getspecific at an address (in a Py_tss_t, behind 1). On
// arm64, the engine finds a wrong one in some files.
func isThreadKey(memory io.ReaderAt, address uint64) bool {
	var b [8]byte
	if _, err := memory.ReadAt(b[:], int64(address)-4); err != nil {
		return false
	}
	return binary.LittleEndian.Uint32(b[:]) == 1 && binary.LittleEndian.Uint32(b[4:]) < maxThreadKeys
}
