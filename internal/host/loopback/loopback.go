// Package loopback keeps pages of other sites from what is served on this host alone.
package loopback

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// IsForeign reports whether a request that came to a loopback address names another host. Then
// its page is of a site whose name was made to mean this host: to a browser that is the same
// origin, and without this check the page could read everything.
func IsForeign(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(host)
	return !strings.EqualFold(host, "localhost") && (err != nil || !addr.Unmap().IsLoopback())
}
