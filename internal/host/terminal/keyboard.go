package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Key is a character that was typed, or one of the keys below.
type Key rune

// Keys that are no characters, and those characters that are keys.
const (
	KeyInterrupt Key = 0x03 // Ctrl-C
	KeyTab       Key = '\t'
	KeyEnter     Key = '\r'
	KeyEscape    Key = 0x1b
	KeyBackspace Key = 0x7f

	KeyUp Key = -1 - iota
	KeyDown
	KeyRight
	KeyLeft
	KeyPageUp
	KeyPageDown
	KeyHome
	KeyEnd
	KeyBackTab
)

const (
	// escapeTimeout tells the key Escape from the first byte of another key's sequence, also on a
	// slow connection.
	escapeTimeout = 50 * time.Millisecond

	// maxSequence is more than any key sends.
	maxSequence = 32
)

// Keyboard reads keys from a terminal, one by one and without showing them. Signals are no longer
// sent by keys: Ctrl-C is a key.
type Keyboard struct {
	f     *os.File
	state *term.State
	keys  chan Key
	end   *os.File // closed to end the reading goroutine
	ended <-chan struct{}
}

// OpenKeyboard changes the mode of the terminal r. If r is none, it returns nil, whose methods may
// be called. The caller must Close.
func OpenKeyboard(r io.Reader) (*Keyboard, error) {
	f, ok := r.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, nil //nolint:nilnil // there is nothing to read from
	}
	wait, end, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("reading keys: %w", err)
	}
	state, err := rawInput(int(f.Fd()))
	if err != nil {
		_ = wait.Close()
		_ = end.Close()
		return nil, fmt.Errorf("reading keys: %w", err)
	}
	ended := make(chan struct{})
	k := &Keyboard{f: f, state: state, keys: make(chan Key), end: end, ended: ended}
	go func() {
		defer close(ended)
		defer wait.Close()
		defer close(k.keys)
		k.read(wait)
	}()
	return k, nil
}

// rawInput has all keys reported as they are. Output remains as it was: a line feed begins a line.
func rawInput(fd int) (*term.State, error) {
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err == nil {
		mode.Oflag |= unix.OPOST
		err = unix.IoctlSetTermios(fd, unix.TCSETS, mode)
	}
	if err != nil {
		_ = term.Restore(fd, state)
		return nil, err
	}
	return state, nil
}

// Keys receives the keys. It is closed when the terminal is gone; nil without a terminal.
func (k *Keyboard) Keys() <-chan Key {
	if k == nil {
		return nil
	}
	return k.keys
}

// Close ends reading, and gives the terminal the mode that it had.
func (k *Keyboard) Close() {
	if k == nil {
		return
	}
	_ = k.end.Close()
	for range k.keys { // what was typed and not received
	}
	<-k.ended
	_ = term.Restore(int(k.f.Fd()), k.state)
}

// read sends keys until the other end of a pipe is closed, or the terminal is gone.
func (k *Keyboard) read(wait *os.File) {
	fds := []unix.PollFd{
		{Fd: int32(k.f.Fd()), Events: unix.POLLIN}, {Fd: int32(wait.Fd()), Events: unix.POLLIN},
	}
	var typed []byte
	buf := make([]byte, 256)
	for {
		timeout := -1
		if len(typed) > 0 {
			timeout = int(escapeTimeout.Milliseconds())
		}
		ready, err := unix.Poll(fds, timeout)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || fds[1].Revents != 0:
			return
		case ready > 0:
			n, err := k.f.Read(buf)
			if err != nil {
				return
			}
			typed = append(typed, buf[:n]...)
		}
		typed = k.send(typed, ready == 0)
	}
}

// send sends the keys of what was typed, and returns the beginning of one that is not complete.
func (k *Keyboard) send(typed []byte, final bool) (rest []byte) {
	for len(typed) > 0 {
		key, n := parseKey(typed, final)
		if n == 0 {
			break
		}
		if key != 0 {
			k.keys <- key
		}
		typed = typed[n:]
	}
	return typed
}

// parseKey returns the first key, and how many bytes it is; 0 bytes: there may be more of it,
// unless these are all. Key 0 is none that is known.
func parseKey(b []byte, final bool) (key Key, n int) {
	switch {
	case b[0] == 0x1b:
		return parseSequence(b, final)
	case b[0] == '\n':
		return KeyEnter, 1
	case b[0] == '\b':
		return KeyBackspace, 1
	case !utf8.FullRune(b) && !final:
		return 0, 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError && n == 1 {
		return 0, 1
	}
	return Key(r), n
}

// parseSequence parses what begins with an escape character: by ECMA-48, CSI (ESC [), parameters
// and a final byte; or by DEC, ESC O and a byte.
func parseSequence(b []byte, final bool) (key Key, n int) {
	if len(b) == 1 {
		if final {
			return KeyEscape, 1
		}
		return 0, 0
	}
	if b[1] != '[' && b[1] != 'O' {
		return KeyEscape, 1
	}
	for i, c := range b[2:] {
		switch {
		case c >= 0x40 && c <= 0x7e:
			return sequenceKey(string(b[2:2+i]), c), 3 + i
		case c < 0x20 || c > 0x3f || i >= maxSequence:
			return 0, 2 + i
		}
	}
	if final {
		return 0, len(b)
	}
	return 0, 0
}

func sequenceKey(parameters string, last byte) Key {
	if last != '~' {
		return map[byte]Key{
			'A': KeyUp, 'B': KeyDown, 'C': KeyRight, 'D': KeyLeft, 'H': KeyHome, 'F': KeyEnd, 'Z': KeyBackTab,
		}[last]
	}
	number, _, _ := strings.Cut(parameters, ";")
	return map[string]Key{
		"1": KeyHome, "7": KeyHome, "4": KeyEnd, "8": KeyEnd, "5": KeyPageUp, "6": KeyPageDown,
	}[number]
}
