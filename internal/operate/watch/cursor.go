package watch

import "correlator/internal/host/terminal"

// cursor is the chosen row of a table. It stays on its object while others pass it; until it is
// moved, and when it is moved to the first row, it stays on that.
type cursor struct {
	key   any // nil: that of the first row
	index int
	top   int // first row that is visible
}

// place finds the row in a table whose keys may have changed, of which so many rows fit.
func (c *cursor) place(keys []any, fit int) {
	found := c.key == nil
	if found {
		c.index = 0
	}
	for i, key := range keys {
		if !found && key == c.key {
			c.index, found = i, true
		}
	}
	c.index = max(0, min(c.index, len(keys)-1))
	if !found { // the object is gone: another one is in its row
		c.choose(keys)
	}
	if fit <= 0 {
		c.top = 0
		return
	}
	c.top = max(0, min(c.top, c.index, len(keys)-fit))
	c.top = max(c.top, c.index-fit+1)
}

func (c *cursor) choose(keys []any) {
	c.key = nil
	if c.index > 0 && c.index < len(keys) {
		c.key = keys[c.index]
	}
}

// press moves the cursor, and reports whether the key is one that does.
func (c *cursor) press(key terminal.Key, keys []any, fit int) bool {
	page := max(fit-1, 1)
	switch key {
	case terminal.KeyUp, 'k':
		c.index--
	case terminal.KeyDown, 'j':
		c.index++
	case terminal.KeyPageUp:
		c.index -= page
	case terminal.KeyPageDown, ' ':
		c.index += page
	case terminal.KeyHome, 'g':
		c.index = 0
	case terminal.KeyEnd, 'G':
		c.index = len(keys) - 1
	default:
		return false
	}
	c.index = max(0, min(c.index, len(keys)-1))
	c.choose(keys)
	return true
}
