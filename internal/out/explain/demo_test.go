package explain

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/out/report"
)

// What was recorded once can be explained today, in each form: one transaction, which has waited for a lock, when
// another one held it.
func TestDemo(t *testing.T) {
	for _, format := range Formats() {
		var out bytes.Buffer
		assert.NilError(t, Run(t.Context(), Demo{}, &out, io.Discard, Options{Format: format}))
		assert.Check(t, out.Len() > 0, "%s", format)
		if format == report.HTML {
			assert.Check(t, strings.Contains(out.String(), `"timeline":{"start"`) &&
				strings.Contains(out.String(), `"lock"`))
		}
		if format != Table {
			continue
		}
		for _, part := range []string{"transaction ", "in billing (demo)", "holder in transaction", "network", "sleep",
			"throttled", "on a CPU"} {
			assert.Check(t, strings.Contains(out.String(), part), "%q in\n%s", part, &out)
		}
	}
}
