package check

import (
	"io"
	"os"

	"correlator/internal/host/terminal"
)

// StyleOf returns the style for a terminal, or for what is none. It obeys https://no-color.org.
func StyleOf(w io.Writer) Style {
	if !terminal.Is(w) {
		return Style{}
	}
	columns, _ := terminal.Size(w)
	style := Style{Width: columns, Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if style.Width == 0 { // the terminal does not say
		style.Width = 80
	}
	return style
}
