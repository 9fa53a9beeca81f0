package dotstool

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"correlator/dots/client"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/internal/host/sorting"
	"correlator/internal/host/terminal"
)

// Description is what a broker knows.
type Description struct {
	Types   []Type   `json:"types"`
	Clients []Client `json:"clients,omitempty"`

	all bool // of all types, and with the clients
}

// Type is a struct or an enum.
type Type struct {
	Name       string     `json:"name"`
	Flags      []string   `json:"flags,omitempty"`
	Properties []Property `json:"properties,omitempty"` // of a struct
	Elements   []Element  `json:"elements,omitempty"`   // of an enum

	typ *schema.Type
}

// Property is a property of a struct.
type Property struct {
	Tag  uint32 `json:"tag"`
	Name string `json:"name"`
	Type string `json:"type"`
	Key  bool   `json:"key,omitempty"`
}

// Element is an enumerator.
type Element struct {
	Tag   uint32 `json:"tag"`
	Name  string `json:"name"`
	Value int32  `json:"value"`
}

// Client is a guest.
type Client struct {
	ID         uint32   `json:"id"`
	Name       string   `json:"name"`
	State      string   `json:"state"`
	Running    bool     `json:"running"`
	Published  []string `json:"publishedTypes,omitempty"`
	Subscribed []string `json:"subscribedTypes,omitempty"`
}

// Describe asks a broker for the types of some names and what they consist of; without names, for
// all types, and its guests.
func Describe(ctx context.Context, g Guest, names []string) (*Description, error) {
	c := g.new()
	defer c.Close()
	clients, err := client.Subscribe[*system.DotsClient](c, nil)
	if err != nil {
		return nil, err
	}
	if err := connectAndDiscover(ctx, &g, c); err != nil {
		return nil, interruptedBy(ctx, err)
	}
	d := &Description{all: len(names) == 0}
	if d.all {
		d.addAll(c.Types())
		d.addClients(clients)
		return d, nil
	}
	for _, name := range names {
		t, err := c.Types().ResolveType(name)
		if err != nil || t.Kind != schema.StructKind && t.Kind != schema.EnumKind {
			return nil, fmt.Errorf("the broker does not know the type %.255q", name)
		}
		d.add(t)
	}
	return d, nil
}

// addAll adds all types but those of the protocol, by name.
func (d *Description) addAll(known *schema.Registry) {
	protocol := make(map[string]bool)
	for _, t := range system.NewRegistry().Types() {
		protocol[t.Name] = true
	}
	types := sorting.Sorted(slices.Values(known.Types()), func(a, b *schema.Type) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, t := range types {
		if !protocol[t.Name] {
			d.add(t)
		}
	}
}

// add adds a type behind those that it consists of, unless it is there.
func (d *Description) add(t *schema.Type) {
	if t.Kind == schema.StructKind {
		for _, dependency := range schema.Dependencies(t.Struct) {
			d.addOne(dependency)
		}
	}
	d.addOne(t)
}

func (d *Description) addOne(t *schema.Type) {
	if slices.ContainsFunc(d.Types, func(other Type) bool { return other.Name == t.Name }) {
		return
	}
	described := Type{Name: t.Name, typ: t}
	if t.Kind == schema.EnumKind {
		for _, e := range t.Enum.Elements {
			described.Elements = append(described.Elements, Element{e.Tag, e.Name, e.Value})
		}
	} else {
		described.Flags = t.Struct.Flags.Names()
		for _, p := range t.Struct.Properties {
			described.Properties = append(described.Properties, Property{p.Tag, p.Name, p.Type.Name, p.Key})
		}
	}
	d.Types = append(d.Types, described)
}

func (d *Description) addClients(clients *client.Subscription[system.DotsClient, system.DotsClientKey]) {
	for _, c := range clients.All() {
		guest := Client{
			ID: c.ID.Value(), Name: c.Name.Value(), Running: c.Running.Value(),
			Published: c.PublishedTypes.Value(), Subscribed: c.SubscribedTypes.Value(),
		}
		if state, ok := c.ConnectionState.Get(); ok {
			guest.State = state.String()
		}
		d.Clients = append(d.Clients, guest)
	}
	sorting.Sort(d.Clients, func(a, b Client) int { return cmp.Compare(a.ID, b.ID) })
}

// Write writes the types in the language of .dots files, and a table of the guests.
func (d *Description) Write(w io.Writer) error {
	for i, t := range d.Types {
		if i > 0 {
			fmt.Fprintln(w)
		}
		// All names are identifiers, and brokers tell no documentation: there is nothing to escape.
		if _, err := w.Write(schema.AppendDots(nil, t.typ)); err != nil {
			return err
		}
	}
	if !d.all {
		return nil
	}
	if len(d.Types) > 0 {
		fmt.Fprintln(w)
	}
	table := terminal.NewTable(
		terminal.Column{Title: "ID", Right: true}, terminal.Column{Title: "NAME", Shrink: true},
		terminal.Column{Title: "STATE"}, terminal.Column{Title: "PUBLISHED", Shrink: true, Spare: 2},
		terminal.Column{Title: "SUBSCRIBED", Shrink: true, Spare: 1})
	for _, c := range d.Clients {
		table.Row(strconv.FormatUint(uint64(c.ID), 10), c.Name, c.State, strings.Join(c.Published, " "),
			strings.Join(c.Subscribed, " "))
	}
	return table.Write(w)
}
