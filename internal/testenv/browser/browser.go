// Package browser has tests look at a page in headless Chromium.
package browser

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"correlator/internal/testenv"
)

// screenshots names the directory that screenshots are kept in, for people to look at them.
const screenshots = "CORRELATOR_SCREENSHOTS"

// Page is a page that is shown. What goes wrong ends the test.
type Page struct {
	tb  testing.TB
	ctx context.Context
	dir string
}

// Open shows a page, of a file or of a server at 127.0.0.1, in a window of this size, until the test
// ends. The test is skipped where there is no Chromium. Nothing else can be reached from the page.
func Open(tb testing.TB, url string, width, height int) *Page {
	tb.Helper()
	path := testenv.NeedTool(tb, "chromium")
	dir := os.Getenv(screenshots)
	if dir == "" {
		dir = tb.TempDir()
	}
	// Root cannot have Chromium's sandbox; what is shown is ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(width, height), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	tb.Cleanup(cancel)
	p := &Page{tb: tb, ctx: ctx, dir: dir}
	p.Do(chromedp.Navigate(url))
	return p
}

// Do does what a user would.
func (p *Page) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.tb.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.tb.Fatal(err)
	}
}

// Eval returns the value of an expression as JSON.
func (p *Page) Eval(expression string) string {
	p.tb.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("JSON.stringify("+expression+")"))
	if err != nil {
		p.tb.Fatalf("%s: %v", expression, err)
	}
	return text
}

// Decode stores the value of an expression, as json.Unmarshal does.
func (p *Page) Decode(expression string, value any) {
	p.tb.Helper()
	if err := json.Unmarshal([]byte(p.Eval(expression)), value); err != nil {
		p.tb.Fatalf("%s: %v", expression, err)
	}
}

// Prefer sets the color scheme that the user prefers, "light" or "dark".
func (p *Page) Prefer(scheme string) {
	p.tb.Helper()
	p.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// Screenshot keeps a picture of the page.
func (p *Page) Screenshot(name string) {
	p.tb.Helper()
	image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, name+".png"), image, 0o644); err != nil {
		p.tb.Fatal(err)
	}
}
