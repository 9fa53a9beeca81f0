package live

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/chromedp/chromedp"

	"correlator/internal/lab/testenv"
	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
	"correlator/profile"
)

// viewKept opens the page of a new Live with what keeps.
func (w *window) viewKept(source Source) (*Live, *keep.Keep) {
	w.t.Helper()
	kept := keep.Open(keep.Config{For: time.Hour, Bytes: keep.MinBytes}, testAbout, nil)
	w.t.Cleanup(func() { kept.Shutdown(context.Background()) })
	l := openLive(w.t, Config{Listen: []string{newSocket(w.t)}})
	l.ShowTimelines(func(ctx context.Context, of keep.Only) ([]byte, error) {
		return explain.LiveTimeline(context.WithoutCancel(ctx), kept, of) // however long it takes
	})
	l.Start(source)
	w.open(listen(w.t, l.broker))
	return l, kept
}

// traced is a transaction of a process.
type traced struct {
	live     *Live
	kept     *keep.Keep
	resource *profile.Resource
}

// did has a thread sampled once, and then wait.
func (of *traced) did(tid int, name string, wait time.Duration, causes ...string) {
	s := newSample(1000, tid, 7, 1, time.Now())
	s.Resource, s.Thread, s.Stack = of.resource, name, frames(name+".run", "main")
	s.TraceID[0], s.TransactionID[0] = 1, 1
	s.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "http.route", Value: "/orders"}})
	waited := newWait(s, profile.Futex, wait, causes...)
	waited.Wait.Waker = profile.Waker{Kind: profile.ThreadWaker, PID: of.resource.PID, TID: 7, Thread: name,
		TraceID: s.TraceID, TransactionID: s.TransactionID}
	for _, sample := range []*profile.Sample{s, waited} {
		of.kept.Sampled(sample)
	}
	of.live.Sampled(s)
}

// choose chooses the only transaction, which is sampled meanwhile.
func (w *window) choose(feed func()) {
	w.t.Helper()
	w.poll(`document.querySelector("#transactions tbody tr")?.click() || view.transaction !== null`, feed)
}

const untimed = `document.querySelector("#untimed").textContent`

// The timeline of the chosen transaction grows while that runs; what is zoomed and chosen in it stays. It is drawn,
// told in a table, and searched. When the transaction has ended, it stays, until none is chosen; then nobody wants it.
func testPageTimeline(t *testing.T, w *window) {
	const evil = `<img src=x onerror="window.evil=1">` + "\u202e\x1b"
	l, kept := w.viewKept(newSource(1))
	of := &traced{live: l, kept: kept, resource: &profile.Resource{PID: 1000}}
	feed := func() { of.did(7, "worker", 300*time.Microsecond, "Lock.take") }
	w.choose(func() { l.Sampled(newSample(1000, 7, 7, 1, time.Now())) })
	w.poll(untimed+` == "No timeline: no sample or wait of it is kept yet."`, nil)
	w.Click("#close")
	l.tracker.age(7)
	w.pollRows("transactions", 0, nil)

	of.did(8, evil, 20*ms, evil)
	w.choose(feed)
	w.poll(`view.timeline.threads == 2 && `+untimed+` == ""`, feed)
	var rows []string
	w.Decode(`[...document.querySelectorAll("#timeline tbody tr")].map(r => r.textContent)`, &rows)
	text := strings.Join(rows, "\n")
	assert.Check(t, strings.Contains(text, `<img src=x onerror="window.evil=1">`) &&
		strings.Contains(text, "8lock120.0 ms"), "%q", rows)
	w.want(`[typeof window.evil, document.images.length]`, `["undefined",0]`)
	const wait = `view.timeline.lanes.find(lane => lane.name.endsWith(" 8")).events.find(e => e.kind === "lock")`
	for scheme, want := range map[string]string{"light": "[47,111,222]", "dark": "[106,162,255]"} {
		w.Prefer(scheme)
		w.Eval(`[view.timeline.fit(` + wait + `)].length`)
		w.poll(`((t, {left, top, width, height}) => JSON.stringify([...t.context.getImageData((left + width - 4) *
			devicePixelRatio, (top + height - 3) * devicePixelRatio, 1, 1).data].slice(0, 3)))(view.timeline,
			view.timeline.box(`+wait+`)) == "`+want+`"`, nil)
	}
	w.shoot("timeline")

	w.Eval(`[view.timeline.select(` + wait + `)].length`)
	absolute := `[t.from, t.to, t.selected.first].map(at => Math.round(at + 1000 * t.start))`
	var before, after []float64
	w.Decode(`(t => `+absolute+`)(view.timeline)`, &before)
	w.Eval(`view.known = view.version`)
	w.poll(`view.version > view.known && view.timeline.lanes.some(lane => lane.events.length > 10)`, feed)
	w.Decode(`(t => `+absolute+`)(view.timeline)`, &after)
	for i := range before {
		assert.Check(t, before[i]-after[i] < 3 && after[i]-before[i] < 3, "was %f, is %f", before, after)
	}
	w.Do(chromedp.KeyEvent("/"), chromedp.SendKeys("#query", "/^ONERROR|window.evil/"))
	w.poll(`/; 2 of \d+ blocks/.test(document.querySelector("#found").textContent)`, feed)

	l.tracker.age(7)
	w.pollRows("transactions", 0, nil)
	w.poll(`!view.objects("CorrelatorTransactionTimeline").size`, nil)
	w.want(`view.timeline.threads`, "2")
	w.Click("#close")
	w.want(`document.querySelector("#timeline").hidden`, "true")
	testenv.Poll(t, patience, "nobody wants timelines", func() bool {
		return l.broker.Members("CorrelatorTransactionTimeline") == 0
	})
}

// Why there is no timeline is told.
func testPageWithoutTimeline(_ *testing.T, w *window) {
	l, _ := w.view(newSource(1), "")
	w.choose(feeder(l, frames("main"), 7))
	w.poll(untimed+` == "No timeline: nothing is kept (--keep)."`, nil)
}

// Of many threads, those are drawn that are in view; nothing is cut, on any device.
func testPageTimelineFits(_ *testing.T, w *window) {
	l, kept := w.viewKept(newSource(1))
	of := &traced{live: l, kept: kept, resource: &profile.Resource{PID: 1000}}
	feed := func() { of.did(7, "http-nio-8080-e", 300*time.Microsecond, "Lock.take") }
	for i := range 500 {
		of.did(8+i, fmt.Sprint("http-nio-8080-e", i), time.Duration(i%50+1)*ms,
			"com.example.shop.inventory.InventoryRepository.reserve")
	}
	w.choose(feed)
	w.poll(`view.timeline.threads == 501`, feed)
	w.want(`(t => {
		let drawn = 0;
		const draw = t.drawLane;
		t.drawLane = (...args) => { drawn++; draw.apply(t, args); };
		t.draw();
		return drawn > 3 && drawn < 40;
	})(view.timeline)`, "true")
	w.want(`[cutName("python3 15223", 13), cutName("http-nio-8080-e 15223", 12), cutName("a long name", 6)]`,
		`["python3 15223","http-… 15223","a lon…"]`)
	for width, height := range map[int64]int64{390: 844, 1024: 768, 1440: 900, 1920: 1080} {
		w.Do(chromedp.EmulateViewport(width, height))
		w.poll(fmt.Sprintf(`innerWidth == %d && view.timeline.canvas.clientWidth <=
			view.timeline.scroller.clientWidth && view.timeline.canvas.clientWidth > 300`, width), feed)
		w.want(`[innerWidth, `+cutElements+`]`, fmt.Sprintf("[%d,[]]", width))
		w.want(`(t => 13 * t.letter < t.gutter - 10)(view.timeline)`, "true") // "python3 15223"
		w.want(`innerWidth < 800 ||
			document.querySelector("#transactions tbody tr").getBoundingClientRect().bottom < innerHeight`, "true")
		w.shoot(fmt.Sprint("timeline-", width))
	}
}
