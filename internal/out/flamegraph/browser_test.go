package flamegraph

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/browser"
)

// window shows the pages of profiles.
type window struct {
	*browser.Page
	tb testing.TB
}

// open opens the page of a profile as a file.
func (w *window) open(p *Profile) {
	w.tb.Helper()
	file := filepath.Join(w.tb.TempDir(), "page.html")
	testenv.WriteFile(w.tb, file, write(w.tb, p))
	w.Do(chromedp.Navigate("file://" + file))
}

// The page as people see it, in one browser.
func TestPage(t *testing.T) {
	b := browser.Open(t, "about:blank", 1300, 800)
	for name, test := range map[string]func(*testing.T, *window){
		"used by people": testUsed, "outside of transactions": testOutside, "rest": testRestIsShown,
		"hostile names": testHostileNames, "waits": testWaits,
		"difference": testDifference,
		"timeline":   testTimeline, "many lanes": testManyLanes,
	} {
		t.Run(name, func(t *testing.T) { test(t, &window{b.For(t), t}) })
	}
}

func (w *window) text(selector string) (text string) {
	w.tb.Helper()
	w.Decode(`document.querySelector("`+selector+`").textContent`, &text)
	return text
}

func (w *window) names() string {
	w.tb.Helper()
	return w.Eval(`view.flame.boxes.map(b => b.node.name)`)
}

// show shows the page in a color scheme and a width, which the graph takes on.
func (w *window) show(scheme string, width int64) {
	w.tb.Helper()
	w.Prefer(scheme)
	w.Do(chromedp.EmulateViewport(width, 800))
	testenv.Poll(w.tb, time.Minute, "the width", func() bool { // which a ResizeObserver draws for
		return w.Eval(`Math.abs(view.flame.canvas.clientWidth - view.flame.canvas.parentElement.clientWidth) <= 1`) == "true"
	})
}

// shoot keeps screenshots, if somebody wants to look at them: light, dark, and as narrow as a phone.
func (w *window) shoot(name string) {
	w.tb.Helper()
	if !w.KeepsScreenshots() {
		return
	}
	for _, as := range []struct {
		name, scheme string
		width        int64
	}{{"light", "light", 1300}, {"dark", "dark", 1300}, {"narrow", "light", 390}} {
		w.show(as.scheme, as.width)
		w.Screenshot("flamegraph-" + name + "-" + as.name)
	}
	w.show("light", 1300)
}

// shop is a profile of two transactions.
func shop() *Profile {
	outer := []string{"java.lang.Thread.run", "java.util.concurrent.ThreadPoolExecutor$Worker.run",
		"java.util.concurrent.ThreadPoolExecutor.runWorker",
		"org.springframework.web.servlet.DispatcherServlet.doDispatch"}
	stack := func(names ...string) []string { return append(append([]string{}, outer...), names...) }
	return &Profile{
		Title: "checkout 7ad51cbe3a4f0c12", Period: 50 * time.Millisecond,
		Notes: []string{"Mon, 23 Nov 2026 17:24:00 UTC", "host web-3", "http.route=/orders"},
		Groups: []Group{{"checkout 7ad51cbe3a4f0c12", "checkout: transaction 7ad51cbe3a4f0c12 of trace 4bf92f3577b34da6a3ce929d0e0e4736"},
			{"payment 0c1b2a39485766f5", "payment: transaction 0c1b2a39485766f5 of trace 4bf92f3577b34da6a3ce929d0e0e4736"}},
		Stacks: []Stack{
			{0, stack("Shop.checkout", "Shop.price", "java.util.HashMap.get"), 31, 0},
			{0, stack("Shop.checkout", "Shop.price"), 12, 0},
			{0, stack("Shop.checkout", "Shop.reserve", "java.util.Arrays.sort",
				"java.util.DualPivotQuicksort.sort"), 22, 0},
			{0, stack("Shop.checkout", "Shop.receipt"), 14, 0},
			{1, stack("Payment.charge", "javax.crypto.Cipher.doFinal"), 9, 0},
			{1, stack("Payment.charge", "com.fasterxml.jackson.databind.ObjectMapper.writeValueAsString"), 5, 0},
		},
	}
}

// The graph is drawn, searched, zoomed by mouse and keys, and transactions are chosen.
func testUsed(t *testing.T, b *window) {
	b.open(shop())
	got := b.Eval("view.flame.root.time")
	assert.Check(t, got == "93", "%s samples", got)
	got = b.text("#flame h2 span")
	assert.Check(t, got == "4.65 s, 93 samples, all in 2 transactions", "title %q", got)
	got = b.text("#notes")
	assert.Check(t, strings.Contains(got, "host web-3"), "notes %q", got)
	got = b.Eval("getComputedStyle(document.body).backgroundColor")
	assert.Check(t, got == `"rgb(255, 255, 255)"`, "the background is %s: colors.css is missing", got)
	b.shoot("all")
	b.show("light", 390)
	b.show("light", 1300)

	// Search: by text and by regular expression, the share of what is found once.
	b.Do(chromedp.SendKeys("#query", "shop."))
	got = b.text("#found")
	assert.Check(t, got == "3.95 s, 84.9 % is in it", "found %q", got)
	b.shoot("search")
	for text, want := range map[string]string{
		"/^java\\.util\\.(HashMap|Arrays)/": "2.65 s, 57.0 % is in it",
		"nowhere":                           "nothing has such a name",
	} {
		b.Eval(`(() => { const input = document.querySelector("#query"); input.value = ` + fmt.Sprintf("%q", text) +
			`; input.dispatchEvent(new Event("input")); return 0 })()`)
		got := b.text("#found")
		assert.Check(t, got == want, "found of %s: %q", text, got)
	}
	b.Eval(`(() => { const input = document.querySelector("#query"); input.value = "/(/"; input.dispatchEvent(new Event("input")); return 0 })()`)
	got = b.text("#found")
	assert.Check(t, strings.Contains(got, "Invalid regular expression"), "found of a wrong expression: %q", got)

	// Keys: Escape ends the search, brackets choose, arrows and Enter zoom.
	b.Do(chromedp.Focus("#query"), chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("]"))
	if got := b.text("#flame h2 span"); !strings.Contains(got, "transaction 7ad51cbe3a4f0c12 of trace 4bf92f") ||
		b.Eval("view.flame.root.time") != "79" {
		t.Errorf("the first transaction: %q", got)
	}
	b.Do(chromedp.KeyEvent("]"))
	if got := b.names(); !strings.Contains(got, "Payment.charge") || strings.Contains(got, "Shop.") {
		t.Errorf("the second transaction: %s", got)
	}
	for range 5 {
		b.Do(chromedp.KeyEvent(kb.ArrowDown))
	}
	got = b.text("#flame output")
	assert.Check(t, got == "Payment.charge: 700 ms, 100.0 %, 14 samples", "chosen %q", got)
	b.Do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
	got = b.Eval("view.flame.zoom.length")
	assert.Check(t, got == "6", "zoom %s", got)
	b.shoot("zoom")
	b.Do(chromedp.KeyEvent(kb.Escape))
	got = b.Eval("view.flame.zoom.length")
	assert.Check(t, got == "0", "zoom %s after Escape", got)
	b.Do(chromedp.KeyEvent("/"))
	got = b.Eval("document.activeElement.type")
	assert.Check(t, got == `"search"`, "/ leads to %s", got)
}

// What is in no transaction is not said to be of the only one.
func testOutside(t *testing.T, b *window) {
	p := &Profile{Title: "record", Period: 50 * time.Millisecond, Groups: []Group{{"cd02", "transaction cd02"}},
		Stacks: []Stack{{0, []string{"main", "mine"}, 1, 0}, {-1, []string{"main", "other"}, 999, 0}}}
	b.open(p)
	got := b.text("#flame h2 span")
	assert.Check(t, got == "50.00 s, 1000 samples, 50 ms in 1 transaction", "title %q", got)
	b.Do(chromedp.KeyEvent("]"))
	got = b.text("#flame h2 span")
	assert.Check(t, got == "transaction cd02: 50 ms, 1 sample" && b.Eval("view.flame.root.time") == "1",
		"the transaction: %q", got)
	p.Stacks = p.Stacks[:1]
	b.open(p)
	got = b.text("#flame h2 span")
	assert.Check(t, got == "transaction cd02: 50 ms, 1 sample", "alone: %q", got)
	got = b.Eval(`[...document.querySelectorAll("#choice, #brackets")].map(e => e.checkVisibility())`)
	assert.Check(t, got == "[false,false]", "a choice is shown: %s", got)
}

// Waits are told from CPU time by their color, in all and in one transaction, and either can be left out.
func testWaits(t *testing.T, b *window) {
	p := shop()
	p.Stacks = append(p.Stacks,
		Stack{0, []string{"Shop.reserve", "[lock]"}, 0, 1500 * time.Millisecond},
		Stack{1, append(p.Stacks[4].Frames[:5:5], "[net 10.0.0.7:443]"), 0, 20 * time.Millisecond},
		Stack{-1, []string{"other"}, 0, time.Second})
	b.open(p)
	title := func(want string) {
		t.Helper()
		got := b.text("#flame h2 span")
		assert.Check(t, got == want, "title %q, want %q", got, want)
	}
	toggle := func(id string) { b.Eval(`document.querySelector("#` + id + `").click() || 0`) }
	title("7.17 s, 2.52 s of it waits, 93 samples, 6.17 s in 2 transactions")
	b.shoot("waits")
	const colors = `["[lock]", "Payment.charge", "other"].map(name => {
		const {node} = view.flame.boxes.find(b => b.node.name === name);
		return [node.time, node.wait].join("/") + " " + color(name, node.wait >= node.time).slice(0, 5); })`
	got := b.Eval(colors)
	assert.Check(t, strings.Contains(got, `"30/30 hsl(1`) || strings.Contains(got, `"30/30 hsl(2`), got)
	assert.Check(t, strings.Contains(got, `"14.4/0.4 hsl(`) && strings.Contains(got, `"20/20 hsl(`), got)
	toggle("waits")
	title("4.65 s, 93 samples, all in 2 transactions")
	assert.Check(t, !strings.Contains(b.names(), "[lock]") && !strings.Contains(b.names(), "other"), b.names())
	toggle("waits")
	toggle("cpu")
	title("2.52 s, 2.52 s of it waits, 0 samples, 1.52 s in 2 transactions")
	assert.Check(t, strings.Contains(b.names(), "[lock]") && !strings.Contains(b.names(), "Shop.checkout"), b.names())
	b.Do(chromedp.Focus("canvas"), chromedp.KeyEvent("]"))
	title(p.Groups[0].Detail + ": 1.50 s, 1.50 s of it waits, 0 samples")
	toggle("cpu")
	title(p.Groups[0].Detail + ": 5.45 s, 1.50 s of it waits, 79 samples")
	b.open(shop())
	assert.Check(t, b.Eval(`document.querySelector("#states").checkVisibility()`) == "false")
}

// slowAndFast is shop's, where 4 slow transactions are compared with 2 fast ones.
func slowAndFast() *Profile {
	p := shop()
	p.Difference = []int{4, 2}
	p.Groups = []Group{{"A", "A: the 4 slowest transactions"}, {"B", "B: the 2 fastest transactions"}}
	all := p.Stacks
	p.Stacks = nil
	add := func(group, stack int, count uint64, wait time.Duration, frames ...string) {
		p.Stacks = append(p.Stacks, Stack{group, append(slices.Clone(all[stack].Frames), frames...), count, wait})
	}
	add(0, 0, 40, 0) // HashMap.get: 10 samples of A, 4 of B
	add(1, 0, 8, 0)
	add(0, 2, 8, 0) // sort: 2 of each
	add(1, 2, 4, 0)
	add(1, 3, 10, 0) // receipt: 5 of B
	add(0, 4, 0, 2*time.Second, "[lock]")
	return p // A has 11 samples and 500 ms in the mean, B has 11
}

// Sides of a comparison are means; what one has more of is red, what it has less of is blue, and the difference is in
// texts, too. Each side can be looked at alone.
func testDifference(t *testing.T, b *window) {
	b.open(slowAndFast())
	says := func(selector, want string) {
		t.Helper()
		got := b.text(selector)
		assert.Check(t, got == want, "%s: %q, want %q", selector, got, want)
	}
	says("#flame h2 span", "A 1.10 s, B 550 ms, difference +550 ms")
	of := func(name string) string {
		return b.Eval(`(name => { const box = view.flame.boxes.find(b => b.node.name === name);
			const [red, , blue] = view.flame.canvas.getContext("2d").getImageData(
				(box.left + box.width - 4) * devicePixelRatio, (box.top + 15) * devicePixelRatio, 1, 1).data;
			return [view.flame.text(box.node), Math.sign(red - blue)].join() })("` + name + `")`)
	}
	for name, want := range map[string]string{
		"java.util.HashMap.get": "A 500 ms, B 200 ms, difference +300 ms,1",
		"Shop.receipt":          "A 0.0 ms, B 250 ms, difference −250 ms,-1",
		"java.util.Arrays.sort": "A 100 ms, B 100 ms, difference ±0,0",
		"[lock]":                "A 500 ms, B 0.0 ms, difference +500 ms,1",
	} {
		got := of(name)
		assert.Check(t, got == `"`+name+": "+want+`"`, "%s, want %s", got, want)
	}
	b.shoot("difference")
	b.Do(chromedp.SendKeys("#query", "/receipt|sort$/"))
	says("#found", "A 100 ms, B 350 ms, difference −250 ms")
	b.shoot("difference-search")
	b.Do(chromedp.SendKeys("#query", kb.Escape), chromedp.Focus("#flame canvas"), chromedp.KeyEvent(kb.ArrowDown))
	says("#flame output", "java.lang.Thread.run: A 1.10 s, B 550 ms, difference +550 ms")
	b.Do(chromedp.KeyEvent("]"))
	says("#flame h2 span", "A: the 4 slowest transactions: 1.10 s, 500 ms of it waits")
	b.Do(chromedp.KeyEvent("]"))
	says("#flame h2 span", "B: the 2 fastest transactions: 550 ms")
	got := b.Eval(`view.flame.mark === null`)
	assert.Check(t, got == "true", got)
}

// A transaction of which the page has no stacks has its time, and says what is missing.
func testRestIsShown(t *testing.T, b *window) {
	p := &Profile{Title: "many", Period: time.Millisecond}
	for group := range 100 {
		p.Groups = append(p.Groups, Group{Name: fmt.Sprint("tx", group), Detail: fmt.Sprint("transaction ", group)})
		for i := range 200 {
			p.Stacks = append(p.Stacks, Stack{group, []string{"main", fmt.Sprint("method", (group*200+i*7)%500)}, 1, 0})
		}
	}
	b.open(p)
	got := b.Eval(`[view.flame.root.time, view.data.totals.every(n => n === 200), view.data.rest[99]]`)
	assert.Check(t, got == "[20000,true,200]", got)
	got = b.text("#notes")
	assert.Check(t, strings.Contains(got, "[rest: stacks of few samples]"), "notes %q", got)
	b.Eval(`(() => { const select = document.querySelector("#choice select"); select.value = "99"; select.dispatchEvent(new Event("change")); return 0 })()`)
	got = b.text("#flame h2 span")
	assert.Check(t, got == "transaction 99: 200 ms, 200 samples", "title %q", got)
	got = b.names()
	assert.Check(t, got == `["[rest: stacks of few samples]"]`, "frames %s", got)
	b.shoot("rest")
}

// Texts are shown as they are, and run nothing.
func testHostileNames(t *testing.T, b *window) {
	const evil = `<img src=x onerror="window.evil=1"></script><script>window.evil=1</script>`
	p := &Profile{Title: evil, Notes: []string{evil}, Period: time.Millisecond,
		Groups: []Group{{evil, evil}, {"b", "b"}},
		Stacks: []Stack{{0, []string{evil, "constructor", "__proto__", strings.Repeat("long.", 400)}, 3, 0},
			{1, nil, 1, 0}}}
	p.Timeline = &Timeline{End: time.Time{}.Add(time.Second), Notes: []string{evil},
		Brackets: []Bracket{{0, evil, 0, 5}},
		Lanes: []Lane{{Name: evil, Events: []Event{{Kind: "__proto__", Last: time.Second, Frames: []string{evil},
			Cause: evil, EndedBy: evil, Waker: -1}}}}}
	b.open(p)
	got := b.Eval(`[typeof window.evil, document.images.length, document.scripts.length, document.title]`)
	assert.Check(t, strings.HasPrefix(got, `["undefined",0,2,`), "texts are taken for HTML: %s", got)
	got = b.text("h1")
	assert.Check(t, got == evil, "title %q", got)
	got = b.Eval("view.flame.boxes.length")
	assert.Check(t, got == "4", "%s boxes", got)
	got = b.text("#timeline tbody")
	assert.Check(t, strings.HasPrefix(got, evil+"other"), "the table has %q", got)
	b.shoot("hostile")
}

// day is shop's, over time: a thread that waits for another one of the trace, which reads from a socket; and one of the
// other transaction.
func day() *Profile {
	p := shop()
	locked := append(p.Stacks[0].Frames[:5:5], "Shop.reserve", "[lock]")
	read := append(p.Stacks[0].Frames[:4:4], "Shop.load", "[net 10.0.0.7:5432]")
	p.Stacks = append(p.Stacks, Stack{0, locked, 0, 200 * time.Millisecond}, Stack{0, read, 0, 150 * time.Millisecond})
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	p.Timeline = &Timeline{Start: time.UnixMilli(1_790_000_000_000), End: time.UnixMilli(1_790_000_001_000),
		Notes: []string{"a tick is a sample"},
		Lanes: []Lane{
			{0, "http-1 21", []Event{
				{CPU, ms(50), ms(50), 1, 0, p.Stacks[0].Frames, "", "", -1},
				{CPU, ms(100), ms(300), 4, 0, p.Stacks[2].Frames, "", "", -1},
				{"lock", ms(400), ms(600), 1, ms(260), locked, "", "java-7 in transaction 7ad51cbe", 1},
			}, nil},
			{0, "java-7 22", []Event{{"net", ms(420), ms(570), 1, ms(150), read, "10.0.0.7:5432", "network", -1}}, nil},
			{1, "http-9 29", []Event{{CPU, ms(900), ms(900), 1, 0, p.Stacks[4].Frames, "", "", -1}}, nil},
		},
		Brackets: []Bracket{{0, "transaction 7ad51cbe3a4f0c12", 0, ms(700)}, {0, "span ab", ms(380), ms(620)}},
	}
	return p
}

// pixel returns the color of the canvas in the middle of an event, as numbers.
func (w *window) pixel(event string) string {
	return w.Eval(`(() => { const t = view.timeline, {left, top, width, height} = t.box(` + event + `);
		return [...t.canvas.getContext("2d").getImageData((left + width - 4) * devicePixelRatio, (top + height - 3) *
			devicePixelRatio, 1, 1).data].slice(0, 3); })()`)
}

// A thread has its blocks at their times and in its row of the table, they are drawn in both themes, at any width
// within the window, zoomed by keys and the wheel, chosen and found.
func testTimeline(t *testing.T, b *window) {
	b.open(day())
	var cells [][]string
	b.Decode(`[...document.querySelectorAll("#timeline tbody tr")].map(r => [...r.cells].map(c => c.textContent))`, &cells)
	assert.DeepEqual(t, cells, [][]string{{"http-1 21", "CPU samples", "5", "250 ms"},
		{"http-1 21", "lock", "1", "200.0 ms"}, {"java-7 22", "network", "1", "150.0 ms"},
		{"http-9 29", "CPU samples", "1", "50 ms"}})
	got := b.text("#timeline h2 span") + b.text("#timeline .about")
	assert.Check(t, strings.HasPrefix(got, "3 threads, 1.00 s from ") &&
		strings.HasSuffix(got, "a tick is a sample"), got)
	// Where a block is drawn is when it was.
	const lock = "view.timeline.lanes[0].events[2]"
	got = b.Eval(`(t => {
		const {left, width} = t.box(` + lock + `);
		return [left, left + width].map(x => Math.round(t.timeAt(x))); })(view.timeline)`)
	assert.Check(t, got == "[400000,600000]", "the lock is at %s", got)
	for scheme, want := range map[string]string{"light": "[47,111,222]", "dark": "[106,162,255]"} {
		for _, width := range []int64{1024, 1440, 1920} {
			b.show(scheme, width)
			testenv.Poll(t, time.Minute, "the timeline to be drawn", func() bool { return b.pixel(lock) == want })
			got := b.Eval(`[document.documentElement.scrollWidth <= innerWidth,
				view.timeline.canvas.clientWidth > innerWidth * 0.9,
				view.timeline.xOf(view.timeline.to) <= view.timeline.canvas.clientWidth]`)
			assert.Check(t, got == "[true,true,true]", "%d: %s", width, got)
		}
	}
	b.show("light", 1300)
	b.shoot("timeline")
	// From the thread that ended it, a line leads to a wait.
	const line = `(t => [...t.canvas.getContext("2d").getImageData(t.xOf(600000) * devicePixelRatio,
		(t.head + 1.5 * 20) * devicePixelRatio, 1, 1).data])(view.timeline)`
	wakes := b.Eval(line)
	b.Eval(`((t, waker) => { t.lanes[0].events[2].waker = null; t.draw(); t.lanes[0].events[2].waker = waker })(
		view.timeline, view.timeline.lanes[1]) || 0`)
	got = b.Eval(line)
	assert.Check(t, wakes != got && got == "[0,0,0,0]", "%s, without a waker %s", wakes, got)

	// Keys: arrows choose, and it is told what was chosen; + and - zoom around it, and Enter shows it in full.
	b.Do(chromedp.Focus("#timeline .lanes canvas"))
	for range 3 {
		b.Do(chromedp.KeyEvent(kb.ArrowRight))
	}
	got = b.text("#timeline output")
	want := "http-1 21: lock 200.0 ms, from 400.0 ms to 600.0 ms (its stack stands for 260.0 ms, with shorter ones before), " +
		"ended by java-7 in transaction 7ad51cbe; [lock] < Shop.reserve < Shop.checkout"
	assert.Check(t, strings.HasPrefix(got, want), "chosen %q, want %q", got, want)
	b.Do(chromedp.KeyEvent(kb.ArrowDown))
	got = b.text("#timeline output")
	want = "java-7 22: network 150.0 ms, from 420.0 ms to 570.0 ms, 10.0.0.7:5432, ended by network; "
	assert.Check(t, strings.HasPrefix(got, want), "below %q", got)
	length := func() (us float64) {
		b.Decode("view.timeline.to - view.timeline.from", &us)
		return us
	}
	all := length()
	b.Do(chromedp.KeyEvent("+"), chromedp.KeyEvent("+"))
	assert.Check(t, length() == all/4, "%g of %g", length(), all)
	assert.Check(t, b.Eval("view.timeline.from < 420000 && view.timeline.to > 570000") == "true")
	b.shoot("timeline-zoom")
	b.Do(chromedp.KeyEvent("-"))
	assert.Check(t, length() == all/2, "%g of %g", length(), all)
	b.Do(chromedp.KeyEvent(kb.Enter))
	got = b.Eval("[view.timeline.from, view.timeline.to]")
	assert.Check(t, got == "[270000,720000]", "in full: %s", got)
	b.Do(chromedp.KeyEvent(kb.Escape))
	assert.Check(t, length() == all && b.text("#timeline output") == "", "%g of %g", length(), all)
	b.Eval(`view.timeline.canvas.dispatchEvent(new WheelEvent("wheel",
		{deltaY: -300, clientX: 700, cancelable: true}))`)
	assert.Check(t, length() < all/2, "%g of %g", length(), all)
	b.Eval(`document.querySelector("#timeline button").click() || 0`)
	assert.Check(t, length() == all, "%g of %g", length(), all)

	// One search is for both; one choice, too.
	b.Do(chromedp.SendKeys("#query", "Shop.reserve"))
	got = b.text("#found")
	assert.Check(t, strings.HasSuffix(got, "is in it; 2 of 5 blocks"), "found %q", got)
	b.shoot("timeline-search")
	b.Do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("]"))
	got = b.Eval("view.timeline.visible.map(lane => lane.name)")
	assert.Check(t, got == `["http-1 21","java-7 22"]`, "lanes of a transaction: %s", got)
	b.Eval(`document.querySelector("#waits").click() || 0`)
	b.Do(chromedp.SendKeys("#query", "1"))
	got = b.text("#found")
	assert.Check(t, strings.HasSuffix(got, "; 2 of 2 blocks"), "without waits %q", got)
}

// Of many lanes, those are drawn that can be seen; the others come when their lane is scrolled to.
func testManyLanes(t *testing.T, b *window) {
	p := &Profile{Title: "many", Period: 10 * time.Millisecond,
		Timeline: &Timeline{End: time.Time{}.Add(time.Second)}}
	for i := range 500 {
		at := time.Duration(i) * time.Millisecond
		p.Timeline.Lanes = append(p.Timeline.Lanes, Lane{-1, fmt.Sprint("thread ", i), []Event{
			{CPU, at, at, 1, 0, []string{"main"}, "", "", -1},
			{"net", at + 2e6, at + 9e6, 1, 7e6, []string{"main", "[net]"}, "", "", (i + 499) % 500}}, nil})
	}
	b.open(p)
	got := b.Eval(`(() => { let drawn = 0; const {timeline} = view, draw = timeline.drawLane;
		timeline.drawLane = function (...args) { drawn++; draw.apply(this, args); };
		timeline.draw();
		const {clientHeight} = timeline.canvas;
		return [timeline.visible.length, drawn > 5 && drawn < 40, clientHeight < innerHeight / 2]; })()`)
	assert.Check(t, got == "[500,true,true]", got)
	b.Eval(`view.timeline.select(view.timeline.visible[499].events[1]) || 0`)
	testenv.Poll(t, time.Minute, "the last lane", func() bool {
		return b.pixel("view.timeline.selected") == "[12,143,143]"
	})
	b.shoot("many-lanes")
}
