package bpf

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestMaskOf(t *testing.T) {
	const (
		program = "00400000-00401000 r-xp 00000000 fe:00 1 /usr/bin/true\n"
		libc    = "7f8a1b2000-7f8a33a000 r-xp 00000000 fe:00 2 /lib/libc.so.6\n"
	)
	for name, c := range map[string]struct {
		maps string
		want uint64
	}{
		"39 bits":          {program + libc + "7ff5d2a000-7ff5d4b000 rw-p 00000000 00:00 0 [stack]\n", 1<<39 - 1},
		"42 bits":          {program + "3ffd5d20000-3ffd5d50000 rw-p 00000000 00:00 0 [stack]\n", 1<<42 - 1},
		"48 bits":          {program + "ffffd5d2a000-ffffd5d4b000 rw-p 00000000 00:00 0 [stack]\n", 1<<48 - 1},
		"the last page":    {program + "ffffffff0000-1000000000000 rw-p 00000000 00:00 0 [stack]\n", 1<<48 - 1},
		"asked for":        {libc + "ffffffff00000-fffffffff0000 rw-p 00000000 00:00 0\n", 1<<39 - 1},
		"nothing is known": {"", 1<<48 - 1},
		"no such a line":   {"x\n", 1<<48 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := maskOf([]byte(c.maps))
			assert.Check(t, got == c.want, "%#x, want %#x", got, c.want)
		})
	}
}
