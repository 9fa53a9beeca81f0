// Package feed is how a sampler outside of the correlator tells it what it sampled: datagrams
// of records on a Unix socket that only root may write to. A sampler in Go uses Client; one in
// another language sends what the tables in wire.go say.
package feed
