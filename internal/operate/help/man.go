package help

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Page is the manual page of a command: what its help says, in the language of man(7).
type Page struct {
	Name string // of the file: correlator-scan.1
	Text string
}

// Pages returns the manual pages of a command and of all its subcommands that are shown. They depend
// on the commands and the version only.
func Pages(cmd *cobra.Command, version string) []Page {
	pages := []Page{{pageName(cmd) + ".1", page(cmd, version)}}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			pages = append(pages, Pages(sub, version)...)
		}
	}
	return pages
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func page(cmd *cobra.Command, version string) string {
	cmd.InitDefaultHelpFlag() // which cobra adds to a command only when it is executed
	var out strings.Builder
	// Without a date: it would be that of the build.
	fmt.Fprintf(&out, ".TH %s 1 \"\" %s %s\n.nh\n.ad l\n", quote(strings.ToUpper(pageName(cmd))),
		quote(cmd.Root().Name()+" "+version), quote("User Commands"))
	fmt.Fprintf(&out, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", escape(pageName(cmd)),
		escape(cmd.Short), synopsis(cmd))
	for i, paragraph := range paragraphs(cmd) {
		if i > 0 {
			out.WriteString(".PP\n")
		}
		writeParagraph(&out, paragraph)
	}
	writeCommands(&out, cmd)
	for _, g := range groups(cmd.Flags()) {
		if len(g.flags) == 0 {
			continue
		}
		if g.title == "" {
			out.WriteString(".SH OPTIONS\n")
		} else {
			fmt.Fprintf(&out, ".SS %s\n", quote(g.title))
		}
		for _, f := range g.flags {
			name, kind, initial, usage := describe(f)
			fmt.Fprintf(&out, ".TP\n\\fB%s\\fR", escape(name))
			if kind != "" {
				fmt.Fprintf(&out, " \\fI%s\\fR", escape(kind))
			}
			if initial != "" {
				fmt.Fprintf(&out, " %s", escape(initial))
			}
			fmt.Fprintf(&out, "\n%s\n", line(usage))
		}
	}
	out.WriteString(".SH EXIT STATUS\n0: success, 1: failure, 2: wrong usage, 130: interrupted (some commands).\n")
	if cmd.HasParent() {
		fmt.Fprintf(&out, ".SH SEE ALSO\n.BR %s (1)\n", escape(pageName(cmd.Parent())))
	}
	return out.String()
}

func synopsis(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return escape(cmd.CommandPath() + " COMMAND")
	}
	return escape(cmd.UseLine())
}

// writeParagraph writes a paragraph of a help text. The lines of one that is indented remain lines.
func writeParagraph(out *strings.Builder, paragraph string) {
	fill, noFill := "", ""
	if indented(paragraph) {
		noFill, fill = ".nf\n", ".fi\n"
	}
	out.WriteString(noFill)
	for text := range strings.SplitSeq(paragraph, "\n") {
		fmt.Fprintln(out, line(text))
	}
	out.WriteString(fill)
}

func writeCommands(out *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	out.WriteString(".SH COMMANDS\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			fmt.Fprintf(out, ".TP\n.BR %s (1)\n%s\n", escape(pageName(sub)), line(sub.Short))
		}
	}
}

// escaper keeps characters what they are: roff has escapes that begin with a backslash, and
// typographic forms of the others.
var escaper = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

func escape(text string) string { return escaper.Replace(text) }

// line is a line of text, which is no request even if it begins with a dot.
func line(text string) string {
	if strings.HasPrefix(text, ".") {
		return `\&` + escape(text)
	}
	return escape(text)
}

func quote(text string) string { return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"` }
