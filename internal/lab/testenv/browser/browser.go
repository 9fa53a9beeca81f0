// Package browser has tests look at a page in headless Chromium.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// screenshots names the directory that screenshots are kept in, for people to look at them.
const screenshots = "CORRELATOR_SCREENSHOTS"

// patience is how long one action may take, on a machine that does much else. Chromium may never answer,
// and an element may never be ready.
const patience = time.Minute

// Page is a page that is shown. What goes wrong, and what takes too long, ends the test.
type Page struct {
	tb  testing.TB
	ctx context.Context
	dir string // of screenshots; empty: none are kept
}

// Open shows a page, of a file or of a server at 127.0.0.1, in a window of this size, until the test
// ends. The test is skipped where there is no Chromium. Nothing else can be reached from the page.
func Open(tb testing.TB, url string, width, height int) *Page {
	tb.Helper()
	path := testenv.NeedTool(tb, "chromium")
	// Root cannot have Chromium's sandbox; what is shown is ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(patience), chromedp.WindowSize(width, height),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(end)
	ctx, cancel := chromedp.NewContext(ctx)
	tb.Cleanup(cancel)
	p := &Page{tb: tb, ctx: ctx, dir: os.Getenv(screenshots)}
	// The first action starts Chromium, which ends with the context of that: it cannot have a deadline.
	starting := time.AfterFunc(patience, end)
	err := chromedp.Do(ctx)
	starting.Stop()
	assert.NilError(tb, err)
	p.Do(chromedp.Navigate(url))
	return p
}

// For returns the page for a part of the test, which ends by what goes wrong then.
func (p *Page) For(tb testing.TB) *Page {
	part := *p
	part.tb = tb
	return &part
}

// Do does what a user would.
func (p *Page) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.tb.Helper()
	for _, action := range actions {
		_, err := run(p.ctx, action)
		assert.NilError(p.tb, err)
	}
}

func run[T any](ctx context.Context, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// Click clicks in the middle of the first element with a selector, which must be there. chromedp.Click asks
// about an element step by step and begins again when it has been moved meanwhile: on a page that moves
// elements all the time it does not end.
func (p *Page) Click(selector string) {
	p.tb.Helper()
	var at struct{ X, Y float64 }
	p.Decode(fmt.Sprintf(`(element => {
		element.scrollIntoView({block: "nearest"});
		const {x, y, width, height} = element.getBoundingClientRect();
		if (!element.checkVisibility({visibilityProperty: true}) || !width || !height) throw new Error("not visible");
		return {x: x + width / 2, y: y + height / 2};
	})(document.querySelector(%q))`, selector), &at)
	p.Do(chromedp.MouseClickXY(at.X, at.Y))
}

// Eval returns the value of an expression as JSON.
func (p *Page) Eval(expression string) string {
	p.tb.Helper()
	text, err := run(p.ctx, chromedp.Evaluate[string]("JSON.stringify("+expression+")"))
	assert.NilError(p.tb, err, expression)
	return text
}

// Decode stores the value of an expression, as json.Unmarshal does.
func (p *Page) Decode(expression string, value any) {
	p.tb.Helper()
	assert.NilError(p.tb, json.Unmarshal([]byte(p.Eval(expression)), value), expression)
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

// KeepsScreenshots reports whether somebody wants to look at screenshots.
func (p *Page) KeepsScreenshots() bool { return p.dir != "" }

// Screenshot keeps a picture of the page, where KeepsScreenshots.
func (p *Page) Screenshot(name string) {
	p.tb.Helper()
	image, err := run(p.ctx, chromedp.CaptureScreenshot())
	assert.NilError(p.tb, err)
	assert.NilError(p.tb, os.WriteFile(filepath.Join(p.dir, name+".png"), image, 0o644))
}
