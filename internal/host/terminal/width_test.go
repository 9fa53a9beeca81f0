package terminal

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// The widths are those of EastAsianWidth.txt, in every locale.
func TestWidth(t *testing.T) {
	t.Setenv("LC_ALL", "ja_JP.UTF-8")
	for text, want := range map[string]int{
		"":                        0,
		"shop":                    4,
		"größer":                  6,
		"gro\u0308ßer":            6,  // a combining diaeresis
		"決済サービス":                  12, // Han, Katakana
		"ひらがな":                    8,
		"ｼｮｯﾌﾟ":                   4, // halfwidth, the last two as one cluster
		"ＳＨＯＰ":                    8, // fullwidth
		"결제":                      4,
		"\u1100\u1161":            2, // the same in parts: a consonant and its vowel
		"か\u3099":                 2, // a combining mark among wide characters
		"、。「」":                    8,
		"🚀 🇩🇪":                    4, // a pair of regional indicators is one narrow cluster
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
		got := Width(text)
		assert.Check(t, got == want, "%q: %d columns, want %d", text, got, want)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"shop", 4, "shop"}, {"shop", 5, "shop"}, {"shop", 3, "sh…"}, {"shop", 1, "…"}, {"shop", 0, ""}, {"shop",
			-1, ""},
		{"", 0, ""}, {"", -1, ""}, {"s", 1, "s"},
		{"商店", 4, "商店"}, {"商店", 3, "商…"}, {"商店", 2, "…"}, {"商店", 1, "…"}, {"商", 1, "…"}, {"商", 0, ""},
		{"a\u0301b\u0301c", 3, "a\u0301b\u0301c"}, {"a\u0301b\u0301c", 2, "a\u0301…"},
	} {
		got := Cut(c.text, c.width)
		assert.Check(t, got == c.want && Width(got) <= max(c.width, 0),
			"%q at %d columns: %q, want %q", c.text, c.width, got, c.want)
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
		got := strings.Join(table.Lines(columns), "\n")
		assert.Check(t, got == want, "%d columns:\n%s\nwant\n%s", columns, got, want)
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 9, "- \n"},
		{"a bc def", 9, "- a bc\n  def\n"},
		{"a bc def", 10, "- a bc def\n"},
		{"ä bü dëf", 10, "- ä bü dëf\n"},
		{"a\n  bc  ", 10, "- a bc\n"},
		{"a bc def, and more", 0, "- a bc def, and more\n"},
		{"abcdefghijkl m", 5, "- abcdefghijkl\n  m\n"},
	} {
		got := Wrap(c.text, "- ", 2, 2, c.width)
		assert.Check(t, got == c.want, "%q in %d columns: %q, want %q", c.text, c.width, got, c.want)
	}
}
