package watch

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/host/terminal"
)

func keys(names string) (keys []any) {
	for _, name := range names {
		keys = append(keys, name)
	}
	return keys
}

func TestCursor(t *testing.T) {
	var c cursor
	place := func(names string, fit, index, top int) {
		t.Helper()
		c.place(keys(names), fit)
		assert.Check(t, c.index == index && c.top == top,
			"%s: row %d of those from %d, want %d and %d", names, c.index, c.top, index, top)
	}
	press := func(key terminal.Key, names string, fit int) {
		t.Helper()
		assert.Check(t, c.press(key, keys(names), fit), "%q does not move", key)
	}
	place("", 3, 0, 0)
	press(terminal.KeyDown, "", 3)
	place("abcdef", 3, 0, 0)
	place("fabcde", 3, 0, 0) // it stays on the first row
	press(terminal.KeyDown, "abcdef", 3)
	place("abcdef", 3, 1, 0)
	place("acdefb", 3, 5, 3) // and else on its object
	place("bacdef", 3, 0, 0)
	place("acdefb", 3, 5, 3)
	place("acdef", 3, 4, 2) // which is gone
	place("facde", 3, 0, 0)
	press(terminal.KeyPageDown, "facde", 3)
	place("facde", 3, 2, 0)
	press(terminal.KeyEnd, "facde", 3)
	place("facde", 3, 4, 2)
	press(terminal.KeyUp, "facde", 3)
	place("facde", 3, 3, 2)
	place("facde", 1, 3, 3) // on a smaller screen
	place("facde", 0, 3, 0)
	place("facde", 100, 3, 0)
	press(terminal.KeyPageUp, "facde", 100)
	place("facde", 100, 0, 0)
	assert.Check(t, !c.press('x', keys("a"), 3), "any key moves")
}
