package live

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"correlator/internal/testenv"
)

// screenshots names the directory that screenshots are kept in, for people to look at them.
const screenshots = "CORRELATOR_SCREENSHOTS"

// browser is a page in Chromium.
type browser struct {
	tb  testing.TB
	ctx context.Context
	dir string // of screenshots
}

// openPage opens the page of a WebSocket endpoint.
func openPage(tb testing.TB, address string) *browser {
	tb.Helper()
	path := testenv.NeedTool(tb, "chromium")
	dir := os.Getenv(screenshots)
	if dir == "" {
		dir = tb.TempDir()
	}
	// Root cannot have Chromium's sandbox; what is shown is ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1500, 950), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	tb.Cleanup(cancel)
	b := &browser{tb: tb, ctx: ctx, dir: dir}
	b.do(chromedp.Navigate("http://" + address + "/"))
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.tb.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.tb.Fatal(err)
	}
}

// eval returns the value of an expression as JSON.
func (b *browser) eval(expression string) string {
	b.tb.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("JSON.stringify("+expression+")"))
	if err != nil {
		b.tb.Fatalf("%s: %v", expression, err)
	}
	return text
}

// rows returns the texts of a table's cells, in rows.
func (b *browser) rows(section string) (rows [][]string) {
	b.tb.Helper()
	text := b.eval(`[...document.querySelectorAll("#` + section + ` tbody tr")].map(r => [...r.cells].map(c => c.textContent))`)
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		b.tb.Fatal(err)
	}
	return rows
}

// poll waits until an expression is true.
func (b *browser) poll(expression string, meanwhile func()) {
	b.tb.Helper()
	testenv.Poll(b.tb, patience, expression, func() bool {
		if meanwhile != nil {
			meanwhile()
		}
		return b.eval(expression) == "true"
	})
}

// shoot keeps a screenshot, with a light or a dark scheme.
func (b *browser) shoot(name string) {
	b.tb.Helper()
	for _, scheme := range []string{"dark", "light"} {
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			return err
		}))
		image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			b.tb.Fatal(err)
		}
		path := filepath.Join(b.dir, fmt.Sprintf("%s-%s.png", name, scheme))
		if err := os.WriteFile(path, image, 0o644); err != nil {
			b.tb.Fatal(err)
		}
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
