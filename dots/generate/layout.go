package generate

import (
	"bytes"
	"strings"
	"text/tabwriter"
)

// layOut returns code as gofmt formats it, of lines without indentation, in which tabs are between what is aligned with
// the lines around. Of gofmt it does what the code that is generated needs: go/format would be 560 kB of a program that
// hardly anybody has generate code.
func layOut(code []byte) ([]byte, error) {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 8, 1, ' ', tabwriter.TabIndent|tabwriter.DiscardEmptyColumns)
	depth := 0
	for line := range strings.Lines(strings.TrimRight(string(code), "\n") + "\n") {
		first, opened := brackets(line)
		at := depth
		if first < 0 || strings.HasPrefix(line, "case ") || strings.HasPrefix(line, "default:") {
			at--
		}
		if line != "\n" {
			line = strings.Repeat("\t", at) + line
		}
		if _, err := w.Write([]byte(line)); err != nil {
			return nil, err
		}
		depth += opened
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// brackets returns how many brackets a line opens, less those that it closes: with its first byte, and in all.
func brackets(line string) (first, all int) {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case strings.HasPrefix(line[i:], "//"):
			return first, all
		case c == '{' || c == '(':
			all++
		case c == '}' || c == ')':
			all--
		}
		if i == 0 {
			first = all
		}
	}
	return first, all
}
