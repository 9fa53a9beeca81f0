package kallsyms

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestRead(t *testing.T) {
	const text = `0000000000000000 A fixed_percpu_data
ffffffff81000040 t secondary_startup
ffffffff81000080 W weak
ffffffffc0001000 t nft_do	[nf_tables]
zzzz t no_number
nonsense
ffffffff81000080 t
ffffffff81000080 TT two_types
ffffffff81000080 T without_end`
	type symbol struct {
		name         string
		addr         uint64
		known        bool
		code, module bool
	}
	want := []symbol{
		{"fixed_percpu_data", 0, true, false, false},
		{"secondary_startup", 0xffffffff81000040, true, true, false},
		{"weak", 0xffffffff81000080, true, true, false},
		{"nft_do", 0xffffffffc0001000, true, true, true},
		{"no_number", 0, false, true, false},
	}
	var got []symbol
	visit := func(s Symbol) bool {
		addr, known := s.Addr()
		got = append(got, symbol{string(s.Name), addr, known, s.Code(), s.Module})
		return true
	}
	if err := Read(strings.NewReader(text), visit); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	visits := 0
	if err := Read(strings.NewReader(text), func(Symbol) bool { visits++; return false }); err != nil || visits != 1 {
		t.Errorf("%d visits after false, %v", visits, err)
	}
	assert.Check(t, Read(strings.NewReader(strings.Repeat("x", 1<<20)), visit) != nil, "no error for an endless line")
}

func TestText(t *testing.T) {
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
		{"no end", "1000 T _text\n1000 T _stext\n", 0, 0, ErrNoText},
		{"no start", "1000 T _etext\n", 0, 0, ErrNoText},
		{"end before start", "1000 T _etext\n2000 T _text\n", 0, 0, ErrNoText},
		{"symbols of a module", "1000 T _text\n2000 T _etext\t[evil]\n", 0, 0, ErrNoText},
		{"behind a module", "1000 T _text\n5000 t f\t[evil]\n2000 T _etext\n", 0, 0, ErrNoText},
		{"nothing", "", 0, 0, ErrNoText},
		{"no number", "zzzz T _text\n", 0, 0, ErrNoText},
		{"the last line cut", "1000 T _text\n2000 T _etext", 0, 0, ErrNoText},
	} {
		start, end, err := Text(strings.NewReader(tt.text))
		assert.Check(t, start == tt.start && end == tt.end && errors.Is(err, tt.err),
			"%s: %#x, %#x, %v", tt.name, start, end, err)
	}
}

func TestModuleText(t *testing.T) {
	root := t.TempDir()
	for text, want := range map[string]uint64{
		"0xffffffffc0a5f000\n": 0xffffffffc0a5f000,
		"0xffffffffc0a5f000":   0xffffffffc0a5f000,
		"":                     0,
		"0x0000000000000000\n": 0,
		"ffffffffc0a5f000\n":   0,
		"x":                    0,
	} {
		testenv.WriteFile(t, filepath.Join(root, "module/nf_tables/sections/.text"), text)
		addr, err := ModuleText(root, "nf_tables")
		assert.Check(t, addr == want && (want == 0) == errors.Is(err, ErrHidden), "%q: %#x, %v", text, addr, err)
	}
	_, err := ModuleText(root, "missing")
	assert.Check(t, errors.Is(err, os.ErrNotExist), err)
}

// The running kernel shows the bounds of its text.
func TestTextOfThisKernel(t *testing.T) {
	testenv.NeedRoot(t)
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		testenv.Missing(t, "needs /proc/kallsyms")
	}
	defer file.Close()
	if start, end, err := Text(file); errors.Is(err, ErrHidden) {
		testenv.Missing(t, "needs to be shown kernel addresses")
	} else if err != nil || start >= end {
		t.Errorf("%#x, %#x, %v", start, end, err)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff82000000 T _etext\n"))
	f.Add([]byte("0000000000000000 T _text\n"))
	f.Add([]byte("_text\n \n\t\n1000 T f\t[m]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		start, end, err := Text(bytes.NewReader(text))
		assert.Assert(t, (err != nil || start != 0 && start < end) && (err == nil || start == 0 && end == 0),
			"%#x, %#x, %v", start, end, err)
	})
}
