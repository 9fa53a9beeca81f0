package unwind

import (
	"bytes"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/support"
	"gotest.tools/v3/assert"
)

// Of CPython from 3.13 on, the thread's state is that which native code without the interpreter's lock keeps, where the
// C library says how to find it, and where its key is; in 3.14, None has the tag that references in frames have. Others
// are not changed.
func TestCorrectPython(t *testing.T) {
	memory := bytes.NewReader([]byte{
		0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, // at 8
		0, 0, 0, 0, 7, 0, 0, 0, // at 16
		1, 0, 0, 0, 0, 4, 0, 0, // at 24
	})
	tsd := support.TSDInfo{Multiplier: 16}
	type python = support.PyProcInfo
	for i, test := range []struct{ info, want python }{
		{python{Version: 0x30c, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16},
			python{Version: 0x30c, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16},
			python{Version: 0x30d, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16}},
		{python{Version: 0x30e, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 16},
			python{Version: 0x30e, TsdInfo: tsd, AutoTLSKeyAddr: 8, NoneStructAddr: 17}},
		{python{Version: 0x30e, Tls_offset: -8, AutoTLSKeyAddr: 8},
			python{Version: 0x30e, Tls_offset: -8, AutoTLSKeyAddr: 8}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 16},
			python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 16}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 24},
			python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 24}},
		{python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 28},
			python{Version: 0x30d, Tls_offset: -8, TsdInfo: tsd, AutoTLSKeyAddr: 28}},
	} {
		correctPython(&test.info, memory)
		assert.Check(t, test.info == test.want, "%d: %+v", i, test.info)
	}
}
