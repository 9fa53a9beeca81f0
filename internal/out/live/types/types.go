// Package types has the types of the live view: what an agent publishes of its host, and what those
// who look subscribe to.
package types

import "correlator/dots/schema"

//go:generate go run correlator/dots/internal/gen -package types live.dots

// Published returns the types of which objects are published.
func Published() []*schema.Struct {
	return []*schema.Struct{
		(*CorrelatorHost)(nil).Descriptor(), (*CorrelatorProcess)(nil).Descriptor(),
		(*CorrelatorThread)(nil).Descriptor(), (*CorrelatorTransaction)(nil).Descriptor(),
		(*CorrelatorTransactionStack)(nil).Descriptor(), (*CorrelatorStack)(nil).Descriptor(),
		(*CorrelatorTransactionWait)(nil).Descriptor(), (*CorrelatorProcessStack)(nil).Descriptor(),
		(*CorrelatorTransactionTimeline)(nil).Descriptor(),
	}
}
