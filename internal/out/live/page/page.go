// Package page is the live view for browsers: one page, that joins the types of package live by the
// WebSocket of the endpoint that it comes from. It needs no build and nothing from elsewhere.
package page

import (
	"cmp"
	"compress/gzip"
	"embed"
	"io"
	"net/http"
	"path"
	"strings"

	"correlator/internal/out/flamegraph"
)

// Compressed, the files take 17 kB of a binary instead of 55.
//
//go:generate gzip -9knf index.html style.css dots.js table.js view.js
//go:embed *.gz
var files embed.FS

// types are those of the files by the end of their names.
var types = map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

// policy lets the page use what is served with it, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache") // a new version's page is there at once
		switch r.URL.Path {
		case "/flame.js":
			header.Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = w.Write(flamegraph.Script()) // an error means that the client is gone
		case "/timeline.js":
			header.Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = w.Write(flamegraph.TimelineScript())
		case "/colors.css":
			header.Set("Content-Type", "text/css; charset=utf-8")
			_, _ = w.Write(flamegraph.Colors)
		case "/timeline.css":
			header.Set("Content-Type", "text/css; charset=utf-8")
			_, _ = w.Write(flamegraph.TimelineStyle)
		default:
			serve(w, r)
		}
	})
}

// serve serves one of the files.
func serve(w http.ResponseWriter, r *http.Request) {
	name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/"), "index.html")
	file, err := files.Open(name + ".gz")
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(name)]+"; charset=utf-8")
	_, _ = io.Copy(w, text) // an error means that the client is gone
}
