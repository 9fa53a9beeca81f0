//go:build race

package memread

const raceEnabled = true
