package page

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// What is served is what the files have, with its type; nothing else is.
func TestServed(t *testing.T) {
	for path, want := range map[string]struct{ file, contentType string }{
		"/": {"index.html", "text/html; charset=utf-8"}, "/index.html": {"index.html", "text/html; charset=utf-8"},
		"/style.css":    {"style.css", "text/css; charset=utf-8"},
		"/dots.js":      {"dots.js", "text/javascript; charset=utf-8"},
		"/table.js":     {"table.js", "text/javascript; charset=utf-8"},
		"/view.js":      {"view.js", "text/javascript; charset=utf-8"},
		"/flame.js":     {"../../flamegraph/flame.js", "text/javascript; charset=utf-8"},
		"/timeline.js":  {"../../flamegraph/timeline.js", "text/javascript; charset=utf-8"},
		"/colors.css":   {"../../flamegraph/colors.css", "text/css; charset=utf-8"},
		"/timeline.css": {"../../flamegraph/timeline.css", "text/css; charset=utf-8"},
		"/page.go":      {}, "/view.js.gz": {}, "/../page.go": {}, "/a/view.js": {},
	} {
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if want.file == "" {
			assert.Check(t, w.Code == http.StatusNotFound, "%s: %d", path, w.Code)
			continue
		}
		assert.Check(t, w.Code == http.StatusOK && w.Header().Get("Content-Type") == want.contentType, "%s: %d, %v",
			path, w.Code, w.Header())
		assert.Check(t, w.Body.String() == string(testenv.ReadFile(t, want.file)), "%s: run go generate", want.file)
	}
}
