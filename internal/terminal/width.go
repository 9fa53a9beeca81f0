package terminal

import "unicode"

// Width is how many columns of a terminal a text takes: characters of East Asia and emoji two, those that
// are put on the character before them none. Where terminals differ it is what wcwidth(3) of glibc says:
// characters of ambiguous width are narrow, and an emoji of several is as wide as those together.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	switch {
	case r < firstCombining:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, joined):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// firstCombining is U+0300: before it only U+00AD is in these categories, which terminals show.
const firstCombining = 0x300

// joined are the vowels and finals of Hangul, which are written into the syllable before them.
var joined = &unicode.RangeTable{R16: []unicode.Range16{{0x1160, 0x11ff, 1}, {0xd7b0, 0xd7fb, 1}}}

// Cut shortens a text to so many columns, in the last of which a sign says that there was more. Nothing is
// left for a width below 1.
func Cut(text string, width int) string {
	switch {
	case width < 1:
		return ""
	case Width(text) <= width:
		return text
	}
	columns, end := 1, 0 // the sign's
	for i, r := range text {
		if columns += runeWidth(r); columns > width {
			end = i
			break
		}
	}
	return text[:end] + "…"
}

// wide are the characters that are W or F in EastAsianWidth.txt of the Unicode Character Database, 15.0 as
// in package unicode. Ranges go on over what is not assigned, which Escape does not let through.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x2329, 0x232a, 1}, {0x23e9, 0x23ec, 1},
		{0x23f0, 0x23f0, 1}, {0x23f3, 0x23f3, 1}, {0x25fd, 0x25fe, 1}, {0x2614, 0x2615, 1},
		{0x2648, 0x2653, 1}, {0x267f, 0x267f, 1}, {0x2693, 0x2693, 1}, {0x26a1, 0x26a1, 1},
		{0x26aa, 0x26ab, 1}, {0x26bd, 0x26be, 1}, {0x26c4, 0x26c5, 1}, {0x26ce, 0x26ce, 1},
		{0x26d4, 0x26d4, 1}, {0x26ea, 0x26ea, 1}, {0x26f2, 0x26f3, 1}, {0x26f5, 0x26f5, 1},
		{0x26fa, 0x26fa, 1}, {0x26fd, 0x26fd, 1}, {0x2705, 0x2705, 1}, {0x270a, 0x270b, 1},
		{0x2728, 0x2728, 1}, {0x274c, 0x274c, 1}, {0x274e, 0x274e, 1}, {0x2753, 0x2755, 1},
		{0x2757, 0x2757, 1}, {0x2795, 0x2797, 1}, {0x27b0, 0x27b0, 1}, {0x27bf, 0x27bf, 1},
		{0x2b1b, 0x2b1c, 1}, {0x2b50, 0x2b50, 1}, {0x2b55, 0x2b55, 1}, {0x2e80, 0x303e, 1},
		{0x3041, 0x3247, 1}, {0x3250, 0x4dbf, 1}, {0x4e00, 0xa4c6, 1}, {0xa960, 0xa97c, 1},
		{0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1}, {0xfe10, 0xfe6b, 1}, {0xff01, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{
		{0x16fe0, 0x1b2fb, 1}, {0x1f004, 0x1f004, 1}, {0x1f0cf, 0x1f0cf, 1}, {0x1f18e, 0x1f18e, 1},
		{0x1f191, 0x1f19a, 1}, {0x1f200, 0x1f320, 1}, {0x1f32d, 0x1f335, 1}, {0x1f337, 0x1f37c, 1},
		{0x1f37e, 0x1f393, 1}, {0x1f3a0, 0x1f3ca, 1}, {0x1f3cf, 0x1f3d3, 1}, {0x1f3e0, 0x1f3f0, 1},
		{0x1f3f4, 0x1f3f4, 1}, {0x1f3f8, 0x1f43e, 1}, {0x1f440, 0x1f440, 1}, {0x1f442, 0x1f4fc, 1},
		{0x1f4ff, 0x1f53d, 1}, {0x1f54b, 0x1f54e, 1}, {0x1f550, 0x1f567, 1}, {0x1f57a, 0x1f57a, 1},
		{0x1f595, 0x1f596, 1}, {0x1f5a4, 0x1f5a4, 1}, {0x1f5fb, 0x1f64f, 1}, {0x1f680, 0x1f6c5, 1},
		{0x1f6cc, 0x1f6cc, 1}, {0x1f6d0, 0x1f6d2, 1}, {0x1f6d5, 0x1f6df, 1}, {0x1f6eb, 0x1f6ec, 1},
		{0x1f6f4, 0x1f6fc, 1}, {0x1f7e0, 0x1f7f0, 1}, {0x1f90c, 0x1f93a, 1}, {0x1f93c, 0x1f945, 1},
		{0x1f947, 0x1f9ff, 1}, {0x1fa70, 0x1faf8, 1}, {0x20000, 0x3ffff, 1},
	},
}
