// Package demo has the types of the recordings, and types with odd names, for tests.
package demo

//go:generate go run correlator/dots/internal/gen -package demo demo.dots odd.dots
