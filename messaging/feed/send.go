package feed

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// AddLines adds the records that in has as lines of text, until its end. What was read is flushed
// before a read that may block. Empty lines are skipped.
func (c *Client) AddLines(in io.Reader) error {
	lines := bufio.NewReader(in)
	for number := 1; ; number++ {
		line, readErr := lines.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			record, err := parseRecord(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
			if err := c.Add(record); err != nil {
				return err
			}
		}
		if readErr != nil || lines.Buffered() == 0 {
			if err := c.Flush(); err != nil {
				return err
			}
		}
		if readErr == io.EOF {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}
