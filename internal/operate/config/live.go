package config

import (
	"fmt"

	"correlator/dots/endpoint"
	"correlator/internal/out/live"
)

type liveSection struct {
	Listen     Texts  `key:"live-listen" type:"URI"`
	Connect    string `key:"live-connect"`     // URI; empty: no broker
	SecretFile string `key:"live-secret-file"` // path; empty: DOTS_AUTH_SECRET
}

// complete returns the configuration of the live view, with the secret that is in a file or a
// variable.
func (l *liveSection) complete(s *Settings, untraced bool, getenv func(string) string) (live.Config, error) {
	config := live.Config{Listen: l.Listen, Connect: l.Connect, Untraced: untraced,
		Secret: getenv(endpoint.EnvironmentSecret)}
	if l.SecretFile != "" {
		secret, err := readHeader(l.SecretFile)
		if err != nil {
			return config, fmt.Errorf("%s: %w", s.Name("live-secret-file"), err)
		}
		config.Secret = secret
	}
	for i, uri := range l.Listen {
		if err := config.CheckListen(uri); err != nil {
			place := s.Name("live-listen")
			if len(l.Listen) > 1 {
				place += fmt.Sprintf(", number %d", i+1)
			}
			return config, fmt.Errorf("%s: %w", place, err)
		}
	}
	if l.Connect != "" {
		if err := config.CheckConnect(); err != nil {
			return config, fmt.Errorf("%s: %w", s.Name("live-connect"), err)
		}
	}
	return config, nil
}
