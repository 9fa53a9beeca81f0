// Package feed is how other samplers pass their samples to the correlator: datagrams of records on
// a Unix socket that only root may write to. A sampler in Go uses Client; one in another language
// sends what the tables in wire.go specify.
package feed
