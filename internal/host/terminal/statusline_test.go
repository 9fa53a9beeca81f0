package terminal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestStatusLine(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, screen := testenv.Terminal(t, 20, 5)
	line := NewStatusLine(screen)
	line.Plain("not on a terminal")
	line.Set("first")
	line.Set("größer als der Bildschirm")
	fmt.Fprintln(line, "above")
	line.Clear()
	line.Clear()
	fmt.Fprintln(line, "after")
	const clearing = "\r\x1b[K"
	expect(t, master, clearing+"first"+clearing+"größer als der Bil…"+clearing+"above\r\n"+"größer als der "+
		"Bil…"+clearing+"after\r\n")
}

// expect compares what is written to a terminal.
func expect(t *testing.T, master *os.File, want string) {
	t.Helper()
	got := make([]byte, 0, len(want))
	for buf := make([]byte, 4096); len(got) < len(want); {
		n, err := master.Read(buf)
		assert.NilError(t, err)
		got = append(got, buf[:n]...)
	}
	assert.Check(t, string(got) == want, "%q, want %q", got, want)
}

// The last column stays free, for the cursor: on a terminal of one there is no room for anything.
func TestStatusLineOnNarrowTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for columns, want := range map[uint16]string{0: "recording 商店", 12: "recording …", 3: "r…", 2: "…", 1: ""} {
		master, screen := testenv.Terminal(t, columns, 5)
		line := NewStatusLine(screen)
		line.Set("recording 商店")
		fmt.Fprintln(screen, "|")
		expect(t, master, "\r\x1b[K"+want+"|\r\n")
	}
}

// Where there is no terminal, or one that cannot go back in a line, lines follow one another.
func TestStatusLineInFile(t *testing.T) {
	var got bytes.Buffer
	write := func(line *StatusLine) {
		line.Plain("recording for %ds", 3)
		line.Set("nothing")
		fmt.Fprintln(line, "a warning")
		line.Clear()
	}
	write(NewStatusLine(&got))
	assert.Check(t, got.String() == "recording for 3s\na warning\n", "%q", &got)
	t.Setenv("TERM", "dumb")
	_, screen := testenv.Terminal(t, 80, 24)
	assert.Check(t, !NewStatusLine(screen).InPlace(), "a dumb terminal is taken for a clever one")
	assert.Check(t, !strings.Contains(got.String(), "\x1b"), "escapes in a file")
}
