package access

import (
	"errors"

	"correlator/procscan"
)

// Environment is what the environment of a process says of its resource by OpenTelemetry's rules. Empty:
// it says nothing, or too much. Both may be any bytes.
type Environment struct {
	ServiceName        string // OTEL_SERVICE_NAME
	ResourceAttributes string // OTEL_RESOURCE_ATTRIBUTES, not parsed
	IsLong             bool   // one of them has more than is read
}

// The variables of an Environment.
const (
	serviceNameVariable        = "OTEL_SERVICE_NAME"
	resourceAttributesVariable = "OTEL_RESOURCE_ATTRIBUTES"
)

// environment is an Environment as it travels.
type environment struct {
	ServiceName, ResourceAttributes []byte
	IsLong                          bool
}

// Environment reads the environment that the process's program was started with, as
// procscan.Handle.Environment does.
func (p *Process) Environment() (Environment, error) {
	var answer environment
	if _, err := p.call(opEnvironment, &request{}, &answer); err != nil {
		return Environment{}, err
	}
	return Environment{string(answer.ServiceName), string(answer.ResourceAttributes), answer.IsLong}, nil
}

func readEnvironment(handle *procscan.Handle) (any, error) {
	values, err := handle.Environment(serviceNameVariable, resourceAttributesVariable)
	isLong := errors.Is(err, procscan.ErrLong)
	if err != nil && !isLong {
		return nil, err
	}
	return environment{
		IsLong:             isLong,
		ServiceName:        []byte(values[serviceNameVariable]),
		ResourceAttributes: []byte(values[resourceAttributesVariable]),
	}, nil
}
