// Package dotstool is what the commands "correlator dots" do: a broker for any objects, and guests
// that show, publish, describe, record and replay objects of types that they learn from the broker
// or read from .dots files.
//
// Guests keep what a type's container would have (container), so that a line of JSON says whether an
// object was created, updated or removed, and has all of it. Tables are made of the same containers.
package dotstool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"correlator/dots/client"
	"correlator/dots/endpoint"
	"correlator/dots/language"
	"correlator/dots/schema"
	"correlator/dots/system"
)

// connectTimeout is how long a guest waits for its broker, all replays of the cache included.
const connectTimeout = 30 * time.Second

// ErrUsage is wrapped by errors of how a command was called.
var ErrUsage = errors.New("wrong usage")

// Guest says how a command connects to its broker.
type Guest struct {
	Endpoint string // empty: DOTS_ENDPOINT, else Default
	Default  string // empty: endpoint.Default
	Secret   string // empty: that of the endpoint, else DOTS_AUTH_SECRET
	Name     string // of the client
}

// Check returns what is wrong with a Guest, without connecting.
func (g *Guest) Check() error {
	_, err := endpoint.Parse(g.URI())
	return err
}

// URI returns the endpoint: the one that is given, or else that of the environment, or the default.
func (g *Guest) URI() string {
	return cmp.Or(g.Endpoint, os.Getenv(endpoint.EnvironmentEndpoint), g.Default, endpoint.Default)
}

// new returns a client that is to be connected.
func (g *Guest) new() *client.Client {
	return client.New(client.Options{Name: g.Name, Secret: g.Secret})
}

func (g *Guest) connect(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Connect(ctx, g.URI())
}

// parseFiles reads .dots files. They may use each other's types and those of the protocol.
func parseFiles(paths []string) ([]*language.File, error) {
	return parseFilesWith(paths, system.NewRegistry().ResolveType)
}

// parseFilesWith reads .dots files, and resolves by a function what they do not define.
func parseFilesWith(paths []string, resolve func(string) (*schema.Type, error)) ([]*language.File, error) {
	sources := make([]language.Source, len(paths))
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sources[i] = language.Source{Name: path, Text: content}
	}
	return language.Parse(resolve, sources...)
}

func structOf(files []*language.File, name string) (*schema.Struct, error) {
	for _, file := range files {
		for _, t := range file.Types {
			if t.Name == name && t.Struct != nil {
				return t.Struct, nil
			}
		}
	}
	return nil, fmt.Errorf("no struct %.255q in the files of --types", name)
}
