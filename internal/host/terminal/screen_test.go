package terminal

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// What is drawn is cut to the screen, lines that fill it keep their last character (no clearing
// after it), and nothing is written below the last row, where the screen would move up.
func TestScreen(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, terminal := testenv.Terminal(t, 8, 3)
	screen := OpenScreen(terminal)
	columns, rows := screen.Size()
	assert.Check(t, columns == 8 && rows == 3, "%d × %d", columns, rows)
	screen.Draw([]string{"12345678", "123456789", "商店の名前", "below"})
	screen.Draw([]string{"one"})
	screen.Draw(nil)
	screen.Close()
	expect(t, master, "\x1b[?25l\x1b[2J"+
		"\x1b[H"+"\x1b[K12345678\r\n"+"\x1b[K1234567…\r\n"+"\x1b[J商店の…"+
		"\x1b[H"+"\x1b[Jone"+
		"\x1b[H"+"\x1b[J"+
		"\r\n\x1b[?25h")
}

// A marked line is inverse in its whole width.
func TestScreenMarked(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, terminal := testenv.Terminal(t, 4, 3)
	screen := OpenScreen(terminal)
	screen.DrawMarked([]string{"one", "a商"}, 0)
	screen.DrawMarked([]string{"one", "商商商"}, 1)
	screen.DrawMarked([]string{"one"}, 7)
	screen.Close()
	expect(t, master, "\x1b[?25l\x1b[2J"+
		"\x1b[H"+"\x1b[K\x1b[7mone \x1b[27m\r\n"+"\x1b[Ja商"+
		"\x1b[H"+"\x1b[Kone\r\n"+"\x1b[J\x1b[7m商… \x1b[27m"+
		"\x1b[H"+"\x1b[Jone"+
		"\r\n\x1b[?25h")

	var got bytes.Buffer
	screen = OpenScreen(&got)
	screen.DrawMarked([]string{"one", "two"}, 1)
	assert.Check(t, got.String() == "one\ntwo\n\n", "%q", &got)
}

// A terminal without a size is an ordinary one.
func TestScreenOfUnknownSize(t *testing.T) {
	t.Setenv("TERM", "xterm")
	_, terminal := testenv.Terminal(t, 0, 0)
	screen := OpenScreen(terminal)
	defer screen.Close()
	columns, rows := screen.Size()
	assert.Check(t, columns == 80 && rows == 24, "%d × %d", columns, rows)
}

// Where nothing can be drawn in place everything is written, and nothing else.
func TestScreenWithoutTerminal(t *testing.T) {
	var got bytes.Buffer
	screen := OpenScreen(&got)
	screen.Draw([]string{"one", "two"})
	screen.Draw([]string{"three"})
	screen.Close()
	want := "one\ntwo\n\nthree\n\n"
	assert.Check(t, got.String() == want && screen.Resized() == nil, "%q, want %q", &got, want)

	t.Setenv("TERM", "dumb")
	master, terminal := testenv.Terminal(t, 4, 1)
	screen = OpenScreen(terminal)
	columns, rows := screen.Size()
	assert.Check(t, columns == 4 && rows == 0, "%d × %d", columns, rows)
	screen.Draw([]string{"longer", "two"})
	screen.Close()
	expect(t, master, "longer\r\ntwo\r\n\r\n")
}

func TestScreenResized(t *testing.T) {
	t.Setenv("TERM", "xterm")
	_, terminal := testenv.Terminal(t, 80, 24)
	screen := OpenScreen(terminal)
	defer screen.Close()
	assert.NilError(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
	<-screen.Resized()
}
