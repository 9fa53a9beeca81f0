package profile

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseKallsyms(t *testing.T) {
	const x86 = "" +
		"0000000000000000 A fixed_percpu_data\n" +
		"ffffffff81000000 T srso_alias_untrain_ret\n" +
		"ffffffff81000000 T _stext\n" +
		"ffffffff81000000 T _text\n" +
		"ffffffff81e02000 T _etext_of_nothing\n" +
		"ffffffff81e01d31 T _etext\n"
	const arm64 = "" +
		"ffff800080000000 T _text\n" +
		"ffff800080010000 T _stext\n" +
		"ffff800081200000 D _etext\n"
	for _, tt := range []struct {
		name, text string
		start, end uint64
		err        error
	}{
		{"x86-64", x86, 0xffffffff81000000, 0xffffffff81e01d31, nil},
		{"aarch64", arm64, 0xffff800080000000, 0xffff800081200000, nil},
		{"other order", "2000 T _etext\n1800 T _stext\n1000 T _text\n", 0x1000, 0x2000, nil},
		{"_stext before _text", "1000 T _stext\n1800 T _text\n2000 T _etext\n", 0x1000, 0x2000, nil},
		{"only _stext", "1000 T _stext\n2000 T _etext\n", 0x1000, 0x2000, nil},
		{"only _text", "1000 T _text\n2000 T _etext\n", 0x1000, 0x2000, nil},
		{"hidden", "0000000000000000 A x\n0000000000000000 T _text\n", 0, 0, ErrHidden},
		{"no end", "1000 T _text\n1000 T _stext\n", 0, 0, errNoText},
		{"no start", "1000 T _etext\n", 0, 0, errNoText},
		{"end before start", "1000 T _etext\n2000 T _text\n", 0, 0, errNoText},
		{"symbols of a module", "1000 T _text\n2000 T _etext\t[evil]\n", 0, 0, errNoText},
		{"behind a module", "1000 T _text\n5000 t f\t[evil]\n2000 T _etext\n", 0, 0, errNoText},
		{"nothing", "", 0, 0, errNoText},
		{"no number", "zzzz T _text\n", 0, 0, errNoText},
		{"the last line cut", "1000 T _text\n2000 T _etext", 0, 0, errNoText},
	} {
		start, end, err := parseKallsyms(strings.NewReader(tt.text))
		if start != tt.start || end != tt.end || !errors.Is(err, tt.err) {
			t.Errorf("%s: %#x, %#x, %v", tt.name, start, end, err)
		}
	}
	if _, _, err := parseKallsyms(strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
		t.Error("no error for an endless line")
	}
}

func FuzzParseKallsyms(f *testing.F) {
	f.Add([]byte("ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff82000000 T _etext\n"))
	f.Add([]byte("0000000000000000 T _text\n"))
	f.Add([]byte("_text\n \n\t\n1000 T f\t[m]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		start, end, err := parseKallsyms(bytes.NewReader(text))
		if err == nil && (start == 0 || start >= end) || err != nil && (start != 0 || end != 0) {
			t.Fatalf("%#x, %#x, %v", start, end, err)
		}
	})
}

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
	if got := slices.Collect(parseModules([]byte(text))); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for range parseModules([]byte(text)) {
		break // must not go on
	}
}

func FuzzParseModules(f *testing.F) {
	f.Add([]byte("nf_tables 372736 1263 nft_compat,nft_chain_nat, Live 0xffffffffc0a5f000\n"))
	f.Add([]byte("xt_tcpudp 20480 8 - Live 0xffffffffc0900000 (OE)\n. 1 1 - Live 0x1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for m := range parseModules(text) {
			if m.start == 0 || m.end <= m.start || m.name == "" || strings.ContainsAny(m.name, "/\x00 \n") || m.name == "." || m.name == ".." {
				t.Fatalf("%+v", m)
			}
		}
	})
}
