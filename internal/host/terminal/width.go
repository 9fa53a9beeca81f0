package terminal

import "github.com/mattn/go-runewidth"

// widths counts characters of ambiguous width as narrow, whatever the locale is: a table must look
// the same in a file that is read elsewhere.
var widths runewidth.Condition

// Width returns how many columns of a terminal a text takes: characters of East Asia and emoji take
// two, what is combined with the character before it none.
func Width(text string) (columns int) { return widths.StringWidth(text) }

// Cut shortens a text to so many columns, the last of which then shows that there was more. Nothing
// is left for a width below 1.
func Cut(text string, width int) string {
	if width < 1 {
		return ""
	}
	return widths.Truncate(text, width, "…")
}
