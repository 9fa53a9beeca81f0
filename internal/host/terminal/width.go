package terminal

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

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

// Wrap breaks a text between words into lines of at most width columns; 0: it is one line. The first line begins with
// first, which takes column columns, the others with so many spaces.
func Wrap(text, first string, column, indent, width int) string {
	var out strings.Builder
	out.WriteString(first)
	for i, word := range strings.Fields(text) {
		n := Width(word)
		switch {
		case i == 0:
		case width > 0 && column+1+n > width:
			out.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += n
	}
	out.WriteString("\n")
	return out.String()
}
