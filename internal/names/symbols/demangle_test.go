package symbols

import (
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

// longName returns a name whose last argument is the pair of the one before, and so on: its text doubles with
// each of 30.
func longName() string {
	name := "_Z1fI1AIiiE"
	for i := range 30 {
		of := "S" + strings.ToUpper(string("0123456789abcdefghijklmnopqrstuvwxyz"[i])) + "_"
		name += "1AI" + of + of + "E"
	}
	return name + "Ev"
}

func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN3foo3barEv":                          "foo::bar",
		"_ZN3foo3barIiSsEEviPKc":                 "foo::bar<int, std::string>",
		"_ZN3foo3barEv.isra.0":                   "foo::bar",
		"_ZNKSt6vectorIiE4sizeEv":                "std::vector<int>::size",
		"_ZTV3foo":                               "vtable for foo",
		"_RNvC6_123foo3bar":                      "123foo::bar", // Rust's v0, and its older names
		"_RNvNtCs1234_7mycrate3foo3bar":          "mycrate::foo::bar",
		"_ZN4core3fmt5write17h0123456789abcdefE": "core::fmt::write",
		"main":                                   "", "": "", "_Z": "", "_R": "",
		"_ZN3foo": "", "_Ready": "", "runtime.mallocgc": "",
		"_Z" + strings.Repeat("9", maxMangledBytes):             "",
		"_Z" + strings.Repeat("P", maxMangledBytes):             "",
		"_Z1000" + strings.Repeat("x", 1000) + "v":              strings.Repeat("x", 1000),
		"_Z1010" + strings.Repeat("x", 1010) + "IiiiiiiiiiiEvv": "", // longer than maxMangledBytes
	} {
		got := new(Demangler).Demangle(name)
		assert.Check(t, got == want, "%.80q is %q, want %q", name, got, want)
	}
	got := new(Demangler).Demangle(longName())
	assert.Check(t, len(got) == maxDemangledBytes && strings.HasPrefix(got, "f<A<int, int>, "),
		"%d bytes: %.80q", len(got), got)
	// Characters are whole.
	name := "_ZN500" + strings.Repeat("ä", 250) + "500" + strings.Repeat("ä", 250) + "1aIiiiiiiEEvv"
	got = new(Demangler).Demangle(name)
	assert.Check(t, len(got) >= maxDemangledBytes-utf8.UTFMax && len(got) <= maxDemangledBytes && utf8.ValidString(got),
		"%d bytes: %q", len(got), got)
}

// Names that take long use up the time for all of them.
func TestDemangler(t *testing.T) {
	var d Demangler
	if got := d.Demangle("_ZN3foo3barEv"); got != "foo::bar" {
		t.Fatalf("%q after %v", got, d.spent)
	}
	for tries := 0; d.spent < maxDemangling; tries++ {
		if tries == 1<<20 {
			t.Fatalf("%d names took %v", tries, d.spent)
		}
		d.Demangle(longName())
	}
	if got := d.Demangle("_ZN3foo3barEv"); got != "" {
		t.Errorf("%q after %v", got, d.spent)
	}
}

func FuzzDemangle(f *testing.F) {
	for _, name := range []string{
		"_ZN3foo3barIiSsEEviPKc", "_ZZ4mainENKUlT_E_clIiEEDaS_", "_RINvNtC3std3mem8align_ofjE", "_R",
		"___Z1fv_block_invoke",
		"_RYTB0_B0_EC1a", "_ZcvFOstZmLS_S_S_cvT_IE", "_GLOBAL__I__Z2fnv", "_ZN4core3fmt5write17h0123456789abcdefE",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := new(Demangler).Demangle(name)
		assert.Assert(t, len(got) <= maxDemangledBytes && (got == "" || len(name) <= maxMangledBytes),
			"%d bytes for %q", len(got), name)
	})
}
