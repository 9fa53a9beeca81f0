package metrics

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"": "", ":9464": "", "127.0.0.1:9464": "", "[::1]:9464": "", "localhost:0": "", "[fe80::1%eth0]:65535": "",
		"9464":         "is a port without host: 127.0.0.1:9464 is this host only, :9464 every interface",
		"127.0.0.1":    "has no port: 127.0.0.1:9464, perhaps",
		"::1":          "has no port: [::1]:9464, perhaps",
		"localhost":    "is not host:port, as in 127.0.0.1:9464, [::1]:9464 or :9464",
		"http://a:80/": "is not host:port, as in 127.0.0.1:9464, [::1]:9464 or :9464",
		"a:b:1":        "is not host:port, as in 127.0.0.1:9464, [::1]:9464 or :9464",
		":":            "has no port between 0 (any that is free) and 65535",
		":http":        "has no port between 0 (any that is free) and 65535",
		":65536":       "has no port between 0 (any that is free) and 65535",
		":-1":          "has no port between 0 (any that is free) and 65535",
	} {
		got := ""
		if err := CheckAddress(address); err != nil {
			got = err.Error()
		}
		assert.Check(t, got == want, "%q: %q, want %q", address, got, want)
	}
}
