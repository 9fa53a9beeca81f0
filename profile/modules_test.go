package profile

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestParseModules(t *testing.T) {
	const text = "" +
		"nf_tables 372736 1263 nft_compat,nft_chain_nat, Live 0xffffffffc0a5f000\n" +
		"xt_tcpudp 20480 8 - Live 0xffffffffc0900000 (OE)\n" +
		"no_address 20480 8 - Live\n" +
		"hidden 20480 8 - Live 0x0000000000000000\n" +
		"loading 20480 1 - Loading 0xffffffffc0500000\n" +
		"empty 0 1 - Live 0xffffffffc0600000\n" +
		"wraps 4096 1 - Live 0xfffffffffffff001\n" +
		"huge 99999999999999999999 1 - Live 0xffffffffc0700000\n" +
		"no_hex 4096 1 - Live ffffffffc0700000\n" +
		"../evil 4096 1 - Live 0xffffffffc0700000\n" +
		".. 4096 1 - Live 0xffffffffc0700000\n" +
		"\n" +
		"last 4096 1 - Live 0xffffffffc0800000"
	want := []module{
		{"nf_tables", 0xffffffffc0a5f000, 0xffffffffc0aba000},
		{"xt_tcpudp", 0xffffffffc0900000, 0xffffffffc0905000},
		{"loading", 0xffffffffc0500000, 0xffffffffc0505000},
		{"last", 0xffffffffc0800000, 0xffffffffc0801000},
	}
	got := slices.Collect(parseModules([]byte(text)))
	assert.Check(t, slices.Equal(got, want), "%+v, want %+v", got, want)
	for range parseModules([]byte(text)) {
		break // must not go on
	}
}

func FuzzParseModules(f *testing.F) {
	f.Add([]byte("nf_tables 372736 1263 nft_compat,nft_chain_nat, Live 0xffffffffc0a5f000\n"))
	f.Add([]byte("xt_tcpudp 20480 8 - Live 0xffffffffc0900000 (OE)\n. 1 1 - Live 0x1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for m := range parseModules(text) {
			assert.Assert(t, m.start != 0 && m.end > m.start && m.name != "" &&
				!strings.ContainsAny(m.name, "/\x00 \n") && m.name != "." && m.name != "..",
				"%+v", m)
		}
	})
}
