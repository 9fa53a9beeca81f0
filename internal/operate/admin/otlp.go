package admin

import (
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/internal/out/keep"
)

// Status is what `status` shows. Its JSON is an interface.
type Status struct {
	agent.Status
	OTLP *export.Status  `json:"otlp,omitempty"`              // absent when nothing is exported
	Slow *keep.SlowStats `json:"slow_transactions,omitempty"` // absent without --keep-slow
}
