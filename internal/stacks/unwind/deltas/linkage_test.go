package deltas

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// All calls of a PLT for arm64 return by the link register, and what is before them is not described.
func TestLinkageARM64(t *testing.T) {
	compiler := testenv.NeedTool(t, "aarch64-linux-gnu-gcc")
	for flags, header := range map[string]uint64{
		"-shared -fPIC": linkageHeader,
		"-shared -fPIC -mbranch-protection=standard -Wl,-z,force-bti": linkageHeader,
		"-static": 0,
	} {
		program := filepath.Join(t.TempDir(), "program")
		cmd := exec.Command(compiler, append(strings.Fields(flags), "-nostdlib", "-x", "c", "-o", program, "-")...)
		source := "void other(void); void _start(void) { other(); }\n"
		if header == 0 {
			source += "static void *resolve(void) { return 0; } void other(void) __attribute__((ifunc(\"resolve\")));"
		}
		cmd.Stdin = strings.NewReader(source)
		output, err := cmd.CombinedOutput()
		assert.NilError(t, err, "%s", output)
		ref := pfelf.NewReference(program, pfelf.SystemOpener)
		defer ref.Close()
		data, err := NewProvider().GetIntervalDataForFile(ref)
		assert.NilError(t, err)
		file, err := ref.GetELF()
		assert.NilError(t, err)
		plt := file.Section(".plt")
		assert.Assert(t, plt != nil && plt.FileSize > header, flags)
		for at := uint64(0); at < plt.FileSize; at += 4 {
			want := stackdeltatypes.UnwindInfoLR
			if at < header {
				want = stackdeltatypes.UnwindInfoInvalid
			}
			info := infoAt(data, plt.Addr+at)
			assert.Check(t, info == want, "%s: %d: %+v", flags, at, info)
		}
	}
}
