package deltas

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// buildLinkage builds a program for arm64, or a library, with a PLT, and returns its path and where the PLT is.
func buildLinkage(t *testing.T, flags string) (path string, plt elf.SectionHeader) {
	t.Helper()
	compiler := testenv.NeedTool(t, "aarch64-linux-gnu-gcc")
	path = filepath.Join(t.TempDir(), "program")
	cmd := exec.Command(compiler, append(strings.Fields(flags), "-nostdlib", "-x", "c", "-o", path, "-")...)
	source := "void other(void); void _start(void) { other(); }\n"
	if strings.HasPrefix(flags, "-static") {
		source += "static void *resolve(void) { return 0; } void other(void) __attribute__((ifunc(\"resolve\")));"
	}
	cmd.Stdin = strings.NewReader(source)
	output, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", output)
	file, err := elf.Open(path)
	assert.NilError(t, err)
	defer file.Close()
	return path, file.Section(".plt").SectionHeader
}

// All calls of a PLT for arm64 return by the link register, and what is before them is not described.
func TestLinkageARM64(t *testing.T) {
	for flags, header := range map[string]uint64{
		"-shared -fPIC": linkageHeader,
		"-shared -fPIC -mbranch-protection=standard -Wl,-z,force-bti": linkageHeader,
		"-static": 0,
	} {
		path, plt := buildLinkage(t, flags)
		data, _ := extract(t, path)
		assert.Assert(t, plt.Size > header, flags)
		for at := uint64(0); at < plt.Size; at += 4 {
			want := stackdeltatypes.UnwindInfoLR
			if at < header {
				want = stackdeltatypes.UnwindInfoInvalid
			}
			info := infoAt(data, plt.Addr+at)
			assert.Check(t, info == want, "%s: %d: %+v", flags, at, info)
		}
	}
}

// Nothing is said of a PLT that is described, is longer than any, ends where memory does, or has no call.
func TestOtherLinkage(t *testing.T) {
	path, plt := buildLinkage(t, "-shared -fPIC")
	b, err := os.ReadFile(path)
	assert.NilError(t, err)
	const address, size = 16, 32 // of a section's header
	for name, c := range map[string]struct {
		field int
		value uint64
		known []uint64 // addresses that are described
		added int
	}{
		"as it is":            {size, plt.Size, []uint64{plt.Addr + linkageHeader - 4, plt.Addr + plt.Size}, 1},
		"its end described":   {size, plt.Size, []uint64{plt.Addr + plt.Size - 4}, 0},
		"its start described": {size, plt.Size, []uint64{plt.Addr + linkageHeader}, 0},
		"its header alone":    {size, linkageHeader, nil, 0},
		"shorter than a call": {size, 7, nil, 0},
		"longer than any":     {size, maxFollowedBytes + 1, nil, 0},
		"at the end":          {address, -plt.Size + 1, nil, 0},
	} {
		file, err := elf.NewFile(bytes.NewReader(b))
		assert.NilError(t, err)
		changed := bytes.Clone(b)
		binary.LittleEndian.PutUint64(sectionHeader(changed, file, ".plt")[c.field:], c.value)
		assert.NilError(t, os.WriteFile(path, changed, 0o700))
		ref := pfelf.NewReference(path, pfelf.SystemOpener)
		opened, err := ref.GetELF()
		assert.NilError(t, err)
		var data stackdeltatypes.IntervalData
		for _, addr := range c.known {
			block := stackdeltatypes.BasicBlock{Start: addr, End: addr + 4}
			block.Deltas.Add(0, stackdeltatypes.UnwindInfoStop)
			data.Add(block)
		}
		assert.NilError(t, completeLinkage(opened, &data), name)
		assert.Check(t, len(data.Blocks) == len(c.known)+c.added, "%s: %d", name, len(data.Blocks))
		for _, addr := range c.known {
			assert.Check(t, infoAt(&data, addr) == stackdeltatypes.UnwindInfoStop, name)
		}
		ref.Close()
	}
}
