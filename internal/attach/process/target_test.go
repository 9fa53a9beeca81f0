package process

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/procscan"
)

// Whose bounds a process counts against is nothing that it can choose by making cgroups, nor, in a
// container, by taking on users.
func TestOwner(t *testing.T) {
	id, nested := strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba9876543210", 4)
	for _, c := range []struct{ path, innermost, want string }{
		{"/", "", "1000"},
		{"/system.slice/ssh.service", "", "1000"},
		{"/system.slice/docker-" + id + ".scope", id, id},
		{"/docker/" + id + "/system.slice/some.service", id, id},
		{"/docker/" + id + "/docker/" + nested, nested, id},
		{"/docker/" + id + "/a/" + nested + "/b", nested, id},
		{"/docker/" + id + "/user.slice/" + nested, nested, id},
		{"/../docker/" + id, id, id},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/docker-" + id + ".scope", id, "1000"},
		{"/../../user.slice/user-1000.slice/" + id + "/" + nested, nested, "1000"},
	} {
		got := ownerOf(1000, procscan.Cgroup{Path: c.path, ContainerID: c.innermost})
		assert.Check(t, string(got) == c.want, "%s: %q, want %q", c.path, got, c.want)
	}
}

// How threads have what they work on is told of OpenTelemetry's variable where it is that which is used.
func TestTLSText(t *testing.T) {
	for want, view := range map[string]View{
		"static":  {Library: "/lib.so", TLS: "static"},
		"dynamic": {Library: "/lib.so", TLS: "unresolved", OTel: &OTelView{TLS: "dynamic"}},
		"dtpmod":  {Library: "/lib.so", TLS: "dtpmod", SocketPath: "/socket", OTel: &OTelView{TLS: "dynamic"}},
		"":        {OTel: &OTelView{}, Contexts: []string{"go_labels"}},
	} {
		assert.Check(t, view.TLSText() == want, "%q, not %q", view.TLSText(), want)
	}
}
