package elfsym

import (
	"bytes"
	"debug/elf"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// A link has the name of a file in some directory, and its checksum; what has anything else is none.
func TestDebugLink(t *testing.T) {
	longest := strings.Repeat("x", 255)
	for content, want := range map[string]DebugLink{
		"a.debug\x00\x01\x02\x03\x04":       {"a.debug", 0x04030201},
		"a.deb\x00\x00\x00\x01\x02\x03\x04": {"a.deb", 0x04030201},
		longest + "\x00\x01\x02\x03\x04":    {longest, 0x04030201},
		"a.debug\x00\x01\x02\x03":           {},
		"a.debu\x00\x01\x02\x03\x04":        {},
		"\x00\x00\x00\x00\x01\x02\x03\x04":  {},
		"../debu\x00\x01\x02\x03\x04":       {},
		"..\x00\x00\x01\x02\x03\x04":        {},
		".\x00\x00\x00\x01\x02\x03\x04":     {},
		"name without an end 1234":          {},
		"":                                  {},
	} {
		p, err := newPages(bytes.NewReader([]byte(content)), int64(len(content)))
		assert.NilError(t, err)
		got := p.debugLink(elf.Section64{Size: uint64(len(content))})
		assert.Check(t, got == want, "%q: %+v", content, got)
		got = p.debugLink(elf.Section64{Off: 1 << 40, Size: uint64(len(content))})
		assert.Check(t, got == DebugLink{}, "%q: %+v, behind the file", content, got)
	}
}
