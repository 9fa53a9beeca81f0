package auth

import (
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// The first two are the C++ client's own tests, the third was recorded.
var vectors = []struct {
	name, secret string
	nonce        uint64
	cnonce       string
	response     string
}{
	{"clientName", "secret", 0, "cnonce",
		"f374890c4765d9da457724f82f516f4ebc874a24b4ea5a2a0f983922aa0b8149"},
	{"clientName", "secret", 5, "cnonce",
		"de10dac51d89b3e206e47d29d270472dca04cc860d71ec3cb563bc619ff7794d"},
	{"roundtrip", "s3cret", 5337323685196916640, "da483349b82f0c94",
		"04157ce122b788ecfa32b002d3f44cadf7ab2a293d4d3f263d93c64661575a04"},
}

func TestResponse(t *testing.T) {
	for _, v := range vectors {
		got := Response(v.name, v.secret, v.nonce, v.cnonce)
		assert.Check(t, got == v.response, "%s, nonce %d: %s instead of %s", v.name, v.nonce, got, v.response)
	}
}

func TestVerify(t *testing.T) {
	v := vectors[2]
	good := v.response
	for response, want := range map[string]bool{
		good: true, strings.ToUpper(good): true,
		"": false, good[:63]: false, good + "0": false, "z" + good[1:]: false, "1" + good[1:]: false,
		good[:63] + "5": false, strings.Repeat("0", 64): false,
	} {
		got := Verify(response, v.name, v.secret, v.nonce, v.cnonce)
		assert.Check(t, got == want, "%q: %v", response, got)
	}
	if Verify(good, "roundtri", v.secret, v.nonce, v.cnonce) || Verify(good, v.name, "s3cre", v.nonce, v.cnonce) ||
		Verify(good, v.name, v.secret, v.nonce+1, v.cnonce) || Verify(good, v.name, v.secret, v.nonce, "x") {
		t.Error("the response of another name, secret, nonce or client nonce is accepted")
	}
}

func TestNonces(t *testing.T) {
	if a, b := Nonce(), Nonce(); a == 0 || a == b {
		t.Errorf("%d, %d", a, b)
	}
	a, b := CNonce(), CNonce()
	assert.Check(t, regexp.MustCompile("^[0-9a-f]{16}$").MatchString(a) && a != b, "%s, %s", a, b)
}
