// Command recording writes what an agent answers about a transaction: what explain --demo shows.
package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"

	"correlator/internal/operate/admin"
	"correlator/internal/out/keep"
)

func main() {
	log.SetFlags(0)
	id := flag.String("id", "", "of the transaction")
	socket := flag.String("admin-socket", admin.DefaultSocket, "the agent's")
	flag.Parse()
	if err := write(*socket, *id, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

func write(socket, id, path string) error {
	answer, err := admin.NewClient(socket).Samples(context.Background(), keep.Query{ID: id})
	if err != nil {
		return err
	}
	answer.Host = ""
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // an error of it follows one of Close below, or was told
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(answer); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}
