package help

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Nothing of a help text is read as a request or an escape of roff.
func TestPages(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "Does it", Long: ".ad: it's a \\ and a -d\nin two lines\n\n  as\n  is"}
	sub := &cobra.Command{Use: "go PLACE", Short: "Goes", Long: "goes", Run: func(*cobra.Command, []string) {}}
	sub.Flags().StringP("speed", "s", "low", "how `fast`")
	hidden := &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}}
	root.AddCommand(sub, hidden)
	var names []string
	var texts strings.Builder
	for _, page := range Pages(root, "0.1.0") {
		names = append(names, page.Name)
		texts.WriteString(page.Text)
	}
	if want := []string{"tool.1", "tool-go.1"}; !slices.Equal(names, want) {
		t.Errorf("pages %v", names)
	}
	want := `.TH "TOOL" 1 "" "tool 0.1.0" "User Commands"
.nh
.ad l
.SH NAME
tool \- Does it
.SH SYNOPSIS
.B tool COMMAND
.SH DESCRIPTION
\&.ad: it\(aqs a \e and a \-d
in two lines
.PP
.nf
  as
  is
.fi
.SH COMMANDS
.TP
.BR tool\-go (1)
Goes
.SH OPTIONS
.TP
\fB\-h, \-\-help\fR
help for tool
.SH EXIT STATUS
0: success, 1: failure, 2: wrong usage, 130: interrupted (some commands).
.TH "TOOL\-GO" 1 "" "tool 0.1.0" "User Commands"
.nh
.ad l
.SH NAME
tool\-go \- Goes
.SH SYNOPSIS
.B tool go PLACE [flags]
.SH DESCRIPTION
goes
.SH OPTIONS
.TP
\fB\-h, \-\-help\fR
help for go
.TP
\fB\-s, \-\-speed\fR \fIfast\fR (default: low)
how fast
.SH EXIT STATUS
0: success, 1: failure, 2: wrong usage, 130: interrupted (some commands).
.SH SEE ALSO
.BR tool (1)
`
	if texts.String() != want {
		t.Errorf("the pages are\n%s", texts.String())
	}
}
