package terminal

import (
	"strings"
	"testing"
	"unicode"
)

// The widths are those of wcwidth(3), and of EastAsianWidth.txt.
func TestWidth(t *testing.T) {
	for text, want := range map[string]int{
		"":                        0,
		"shop":                    4,
		"größer":                  6,
		"gro\u0308ßer":            6,  // a combining diaeresis
		"決済サービス":                  12, // Han, Katakana
		"ひらがな":                    8,
		"ｼｮｯﾌﾟ":                   5, // halfwidth
		"ＳＨＯＰ":                    8, // fullwidth
		"결제":                      4,
		"\u1100\u1161":            2, // the same in parts: a consonant and its vowel
		"か\u3099":                 2, // a combining mark among wide characters
		"、。「」":                    8,
		"🚀 🇩🇪":                    5, // regional indicators are narrow
		"✓ ✅ ☀ ⚡":                 9,
		"…·×":                     3, // ambiguous
		"магазин":                 7,
		"\U0002070e":              2, // the supplementary plane of Han
		"ภาษา":                    4,
		"a\u0301\u0302b":          2,
		"\u20dd":                  0, // an enclosing circle
		"\u200b\u200d":            0,
		"क\u094dष":                2,
		strings.Repeat("商", 1000): 2000,
	} {
		if got := Width(text); got != want {
			t.Errorf("%q: %d columns, want %d", text, got, want)
		}
	}
}

// All that package unicode knows of scripts that are wide is, but for what joins; and nothing of others.
func TestWideScripts(t *testing.T) {
	wide := []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Yi,
		unicode.Tangut, unicode.Nushu}
	narrow := []*unicode.RangeTable{unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Arabic, unicode.Devanagari, unicode.Thai}
	for r := rune(0); r < 0x40000; r++ {
		switch {
		case r >= 0xff01 && r <= 0xffdc, r == 0x2ea, r == 0x2eb: // fullwidth and halfwidth forms; tone marks of Bopomofo
		case unicode.In(r, narrow...) && runeWidth(r) > 1:
			t.Errorf("%U %c is wide", r, r)
		case unicode.In(r, wide...) && !unicode.In(r, unicode.Mn, unicode.Cf, joined) && runeWidth(r) != 2:
			t.Errorf("%U %c has %d columns", r, r, runeWidth(r))
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"shop", 4, "shop"}, {"shop", 5, "shop"}, {"shop", 3, "sh…"}, {"shop", 1, "…"}, {"shop", 0, ""}, {"shop", -1, ""},
		{"", 0, ""}, {"", -1, ""}, {"s", 1, "s"},
		{"商店", 4, "商店"}, {"商店", 3, "商…"}, {"商店", 2, "…"}, {"商店", 1, "…"}, {"商", 1, "…"}, {"商", 0, ""},
		{"a\u0301b\u0301c", 3, "a\u0301b\u0301c"}, {"a\u0301b\u0301c", 2, "a\u0301…"},
	} {
		got := Cut(c.text, c.width)
		if got != c.want || Width(got) > max(c.width, 0) {
			t.Errorf("%q at %d columns: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// A column is as wide on the screen as the widest text in it, whatever it is written in.
func TestTableOfWideTexts(t *testing.T) {
	table := NewTable(Column{Title: "N", Right: true}, Column{Title: "SERVICE", Shrink: true}, Column{Title: "STATE"})
	table.Row("1", "決済サービスと支払い", "ready")
	table.Row("商", "shop", "ready")
	for columns, want := range map[int]string{
		0:  " N  SERVICE               STATE\n 1  決済サービスと支払い  ready\n商  shop                  ready",
		24: " N  SERVICE        STATE\n 1  決済サービス…  ready\n商  shop           ready",
		23: " N  SERVICE       STATE\n 1  決済サービ…   ready\n商  shop          ready",
	} {
		if got := strings.Join(table.Lines(columns), "\n"); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", columns, got, want)
		}
	}
}
