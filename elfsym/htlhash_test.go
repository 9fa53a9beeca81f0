package elfsym

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"
)

// The sums were computed by
//
//	seq 1 100000 | tr -d '\n' | head -c N > F
//	(head -c 4096 F; tail -c 4096 F; printf '\0\0\0\0\0\0\xHH\xHH') | sha256sum | cut -c1-32
//
// with N in hexadecimal in the place of HHHH.
func TestHTLHash(t *testing.T) {
	var digits []byte
	for i := 1; len(digits) < 20000; i++ {
		digits = strconv.AppendInt(digits, int64(i), 10)
	}
	for size, want := range map[int]string{
		0:     "af5570f5a1810b7af78caf4bc70a660f",
		1:     "ae067dace2a2c4d59c28a1b7cdac19cd",
		4095:  "5d5c2330e3c40f2666343f5ad6e291c7",
		4096:  "97f030584b90d08b862dc2b98894556c",
		4097:  "d42fab02ce9b72779c1a0304aea648c6",
		5000:  "7a85515aa58a3d4530e3905450f494a5",
		8191:  "92ec42e73aa759393ca14d2b9d11fe51",
		8192:  "186f0bdacbf49be142a98f87beeed713",
		8193:  "f48570f5d0207ae37e9f6f95604c9638",
		20000: "046dbac957eaa3ae71d88cf20d930c48",
	} {
		m := &meter{r: bytes.NewReader(digits[:size])}
		p, err := newPages(m, int64(size))
		assert.NilError(t, err)
		hash, err := htlHash(p)
		assert.NilError(t, err)
		got := hex.EncodeToString(hash[:])
		assert.Check(t, got == want, "%d bytes: %s, want %s", size, got, want)
		once, both := min(size, 4096), 2*4096
		assert.Check(t, m.bytes == once || size > 4096 && m.bytes == both, "%d bytes: %d read", size, m.bytes)
	}
}
