package live

import (
	"strings"
	"testing"

	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/browser"
)

// window shows the page of the live view.
type window struct {
	*browser.Page
	tb testing.TB
}

// openPage opens the page of a WebSocket endpoint.
func openPage(tb testing.TB, address string) *window {
	tb.Helper()
	return &window{browser.Open(tb, "http://"+address+"/", 1500, 950), tb}
}

// rows returns the texts of a table's cells, in rows.
func (w *window) rows(section string) (rows [][]string) {
	w.tb.Helper()
	w.Decode(`[...document.querySelectorAll("#`+section+` tbody tr")].map(r => [...r.cells].map(c => c.textContent))`,
		&rows)
	return rows
}

// poll waits until an expression is true.
func (w *window) poll(expression string, meanwhile func()) {
	w.tb.Helper()
	testenv.Poll(w.tb, patience, expression, func() bool {
		if meanwhile != nil {
			meanwhile()
		}
		return w.Eval(expression) == "true"
	})
}

// shoot keeps a screenshot, with a light and a dark scheme.
func (w *window) shoot(name string) {
	w.tb.Helper()
	for _, scheme := range []string{"dark", "light"} {
		w.Prefer(scheme)
		w.Screenshot(name + "-" + scheme)
	}
}

// column returns a column of rows as one text.
func column(rows [][]string, i int) string {
	var all []string
	for _, row := range rows {
		all = append(all, row[i])
	}
	return strings.Join(all, " ")
}
