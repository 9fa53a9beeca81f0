package admin

import (
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
)

// Status is what `status` shows. Its JSON is an interface.
type Status struct {
	agent.Status
	OTLP *export.Status `json:"otlp,omitempty"` // absent when nothing is exported
}
