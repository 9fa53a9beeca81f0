package config

import (
	"errors"
	"fmt"
	"path/filepath"

	"correlator/internal/out/export"
)

// openCensusSection is what is received of PHP's OpenCensus clients.
type openCensusSection struct {
	Socket  string            `key:"opencensus-socket"` // path; empty: none
	Section export.OpenCensus `key:"opencensus"`
}

const openCensusPath = "opencensus"

func (o *openCensusSection) export() export.OpenCensus {
	c := o.Section
	c.Receiver.Socket = o.Socket
	return c
}

// validateOpenCensus comes after the destinations are known.
func (c *Config) validateOpenCensus(s *Settings) error {
	const key = "opencensus-socket"
	o := &c.OpenCensus
	at := func(err error) error { return s.at(openCensusPath, fmt.Errorf("%s: %w", openCensusPath, err)) }
	for _, limit := range []struct {
		key                string
		value, least, most int
	}{
		{"max-stack-trace-bytes", o.Section.MaxStackTraceBytes, 0, 1 << 20},
		{"max-views", o.Section.MaxViews, 1, 100_000},
		{"max-series-per-view", o.Section.MaxSeriesPerView, 1, 100_000},
	} {
		if limit.value < limit.least || limit.value > limit.most {
			return s.at(openCensusPath+"."+limit.key, fmt.Errorf("%s.%s %d is not between %d and %d", openCensusPath,
				limit.key, limit.value, limit.least, limit.most))
		}
	}
	if o.Section.ServiceName == "" {
		return at(errors.New("service-name is empty"))
	}
	config := o.export().Receiver
	if config.Socket == "" {
		config.Socket = "somewhere"
		if err := config.Validate(); err != nil {
			return at(err)
		}
		return nil
	}
	if err := checkSocket(s, key, o.Socket); err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return at(err)
	}
	switch prometheus := o.Section.Prometheus; {
	case len(c.OTLP.Section.Destinations) == 0 && !prometheus:
		return fmt.Errorf("%s without a destination of OTLP: there is nowhere to pass on to what is received",
			s.Name(key))
	case prometheus && c.Monitoring.MetricsAddress == "":
		return at(errors.New("prometheus is set without --metrics-address, where the views would be served"))
	}
	return c.validateOpenCensusSocket(s)
}

// validateOpenCensusSocket refuses the path of something else.
func (c *Config) validateOpenCensusSocket(s *Settings) error {
	for _, other := range []struct{ flag, address string }{
		{"admin-socket", "unix:" + c.Monitoring.AdminSocket}, {"feed-socket", "unix:" + c.Samplers.FeedSocket},
		{"otlp-listen", c.OTLP.Listen},
	} {
		if sameAddress(other.address, "unix:"+c.OpenCensus.Socket) {
			return fmt.Errorf("%s and %s are both %s", s.Name("opencensus-socket"), s.Name(other.flag),
				filepath.Clean(c.OpenCensus.Socket))
		}
	}
	return nil
}
