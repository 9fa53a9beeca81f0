package dotstool

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"

	"correlator/dots/client"
	"correlator/dots/language"
	"correlator/dots/schema"
)

// maxLine is the length of the longest line that is read: no frame is longer by default.
const maxLine = 64 << 20

// Objects calls a function for each of some objects in JSON, until it returns an error.
type Objects func(each func(text []byte) error) error

// One is a single object.
func One(text string) Objects {
	return func(each func([]byte) error) error { return each([]byte(text)) }
}

// Lines are objects in the lines of a stream. Empty lines are none.
func Lines(r io.Reader) Objects {
	return func(each func([]byte) error) error {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, maxLine)
		number := 0
		for scanner.Scan() {
			number++
			if line := bytes.TrimSpace(scanner.Bytes()); len(line) > 0 {
				if err := each(line); err != nil {
					return fmt.Errorf("line %d: %w", number, err)
				}
			}
		}
		if err := scanner.Err(); err != nil {
			return fmt.Errorf("reading line %d: %w", number+1, err)
		}
		return nil
	}
}

// Publish publishes objects of a type.
type Publish struct {
	Guest  Guest
	Type   string
	Files  []string // that define the type; none: the broker knows it
	Remove bool
}

// Run publishes objects, and returns when the broker has them. What comes before an error is
// published. The end of the context ends the input, which is no error unless there was no connection
// yet.
func (p *Publish) Run(ctx context.Context, objects Objects) error {
	files, err := parseFiles(p.Files)
	if err != nil {
		return err
	}
	c := p.Guest.new()
	defer c.Close()
	s, err := p.connect(ctx, c, files)
	if err != nil {
		return interruptedBy(ctx, err)
	}
	err = interruptible(ctx, c, func() error {
		return objects(func(text []byte) error { return p.publish(ctx, c, s, text) })
	})
	return settle(ctx, c, endedBy(ctx, err))
}

func (p *Publish) publish(ctx context.Context, c *client.Client, s *schema.Struct, text []byte) error {
	o, props, err := parseObject(s, text)
	switch {
	case err != nil:
		return err
	case p.Remove:
		return c.Remove(ctx, client.Dynamic{Object: o})
	}
	return c.PublishProperties(ctx, client.Dynamic{Object: o}, props)
}

func (p *Publish) connect(ctx context.Context, c *client.Client, files []*language.File) (*schema.Struct, error) {
	if len(files) > 0 {
		s, err := structOf(files, p.Type)
		if err != nil {
			return nil, err
		}
		return s, p.Guest.connect(ctx, c)
	}
	if err := connectAndDiscover(ctx, &p.Guest, c); err != nil {
		return nil, err
	}
	s := c.Types().Struct(p.Type)
	if s == nil {
		return nil, fmt.Errorf("the broker does not know the type %.255q; name a file that defines it by --types", p.Type)
	}
	return s, nil
}

// connectAndDiscover connects a client that then knows all types of the broker.
func connectAndDiscover(ctx context.Context, g *Guest, c *client.Client) error {
	discovery, err := c.Discover(nil)
	if err != nil {
		return err
	}
	if err := g.connect(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return discovery.Wait(ctx)
}
