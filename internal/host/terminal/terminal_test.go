package terminal

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "",
		"shop":                "shop",
		"Größe 商店":            "Größe 商店",
		`C:\x "`:              `C:\x "`,
		"\xff\xfe\ufffd":      `\xff\xfe` + "\ufffd",
		`say "hi"`:            `say "hi"`,
		"a\nb\tc":             `a\nb\tc`,
		"\x1b[2J\x1b]0;x\x07": `\x1b[2J\x1b]0;x\a`,
		"\u202e\u0085\x80":    `\u202e\u0085\x80`,
		"\u00a0":              "\u00a0",
	} {
		got := Escape(text)
		assert.Check(t, got == want, "%q became %q, want %q", text, got, want)
	}
}

func example() *Table {
	table := NewTable(Column{Title: "PID", Right: true}, Column{Title: "SERVICE", Shrink: true}, Column{Title: "STATE"},
		Column{Title: "ERROR", Shrink: true})
	table.Row("7", "shop", "ready", "")
	table.Row("4711", "a-service-with-a-long-name", "error\x1b[0m", "ein Fehler, größer als alle anderen")
	return table
}

func TestTable(t *testing.T) {
	for columns, want := range map[int]string{
		0: "" +
			" PID  SERVICE                     STATE         ERROR\n" +
			"   7  shop                        ready         -\n" +
			"4711  a-service-with-a-long-name  error\\x1b[0m  ein Fehler, größer als alle anderen",
		10: "" +
			" PID  SERVICE   STATE         ERROR\n" +
			"   7  shop      ready         -\n" +
			"4711  a-servi…  error\\x1b[0m  ein Feh…",
	} {
		got := strings.Join(example().Lines(columns), "\n")
		assert.Check(t, got == want, "%d columns:\n%s\nwant\n%s", columns, got, want)
	}
	fits := false
	for _, line := range example().Lines(60) {
		width := utf8.RuneCountInString(line)
		fits = fits || width == 60
		assert.Check(t, width <= 60, "%q has %d columns", line, width)
	}
	if !fits {
		t.Errorf("cut too much: %q", example().Lines(60))
	}
	wide := example().Lines(1000)
	if plain := example().Lines(0); strings.Join(wide, "\n") != strings.Join(plain, "\n") {
		t.Errorf("where there is room: %q, want %q", wide, plain)
	}
}

// What can be spared goes when cutting texts is not enough, and only as much as is needed.
func TestTableLeavesOut(t *testing.T) {
	table := NewTable(Column{Title: "A", Spare: 2}, Column{Title: "B", Spare: 3}, Column{Title: "C"},
		Column{Title: "D", Spare: 1})
	table.Row("aaaa", "bbbb", "cccc", "dddd")
	for columns, want := range map[int]string{
		22: "A     B     C     D\naaaa  bbbb  cccc  dddd",
		21: "A     C     D\naaaa  cccc  dddd",
		16: "A     C     D\naaaa  cccc  dddd",
		15: "C     D\ncccc  dddd",
		9:  "C\ncccc",
		1:  "C\ncccc",
	} {
		got := strings.Join(table.Lines(columns), "\n")
		assert.Check(t, got == want, "%d columns:\n%s", columns, got)
	}
}

func TestTableWithoutHead(t *testing.T) {
	table := NewTable(Column{}, Column{})
	table.Row("state", "ready")
	table.Row("service")
	got := strings.Join(table.Lines(0), "\n")
	assert.Check(t, got == "state    ready\nservice  -", "%q", got)
}

func TestWriteToFile(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	assert.NilError(t, err)
	defer f.Close()
	if columns, rows := Size(f); columns != 0 || rows != 0 || Is(f) || Is(&strings.Builder{}) {
		t.Errorf("a file is a terminal of %d × %d", columns, rows)
	}
	assert.NilError(t, example().Write(f))
	text, err := os.ReadFile(f.Name())
	want := strings.Join(example().Lines(0), "\n") + "\n"
	assert.Check(t, err == nil && string(text) == want, "%q, %v, want %q", text, err, want)
}

func TestWriteToTerminal(t *testing.T) {
	master, terminal := testenv.Terminal(t, 60, 10)
	columns, rows := Size(terminal)
	assert.Assert(t, columns == 60 && rows == 10 && Is(terminal), "a terminal of %d × %d", columns, rows)
	assert.NilError(t, example().Write(terminal))
	buf := make([]byte, 4096)
	n, err := master.Read(buf)
	assert.NilError(t, err)
	want := strings.Join(example().Lines(60), "\r\n") + "\r\n"
	got := string(buf[:n])
	assert.Check(t, got == want, "%q, want %q", got, want)
}

// One text of a process does not widen the rows of all where there is no terminal.
func TestTableWithoutTerminal(t *testing.T) {
	table := NewTable(Column{Title: "SERVICE", Shrink: true}, Column{Title: "STATE"})
	table.Row(strings.Repeat("x", 16<<10), "ready")
	table.Row("shop", "ready")
	lines := table.Lines(0)
	want := strings.Repeat("x", widestCut-1) + "…  ready"
	assert.Check(t, lines[1] == want, "%q", lines[1])
	want = "shop" + strings.Repeat(" ", widestCut-4) + "  ready"
	assert.Check(t, lines[2] == want, "%q", lines[2])
}
