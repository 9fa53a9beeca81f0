package live

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"

	"correlator/profile"
)

// many feeds as many samples as 500 processes with 2000 threads on 64 CPUs give, until its end.
func many(l *Live, end <-chan struct{}) {
	names := []string{"main", "serve", "handle", "query", "parse", "encode", "compress", "wait"}
	var samples []*profile.Sample
	for tid := range 2000 {
		s := newSample(1000+tid%500, tid+1, 0, 1, time.Time{})
		s.TransactionID[0], s.TransactionID[1], s.TraceID[0] = byte(tid), byte(tid>>8), byte(tid)
		samples = append(samples, s)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for range 400 {
			s := samples[rand.IntN(len(samples))]
			if rand.IntN(2) == 0 {
				s = samples[rand.IntN(60)]
			}
			var path []string
			for depth := range 10 + rand.IntN(30) {
				path = append(path, "com.example.shop."+names[(depth+rand.IntN(2))%len(names)])
			}
			slices.Reverse(path)
			s.Stack, s.At = frames(path...), time.Now()
			l.Sampled(s)
		}
		select {
		case <-end:
			return
		case <-tick.C:
		}
	}
}

// However much there is to show, and whoever names it, the work of drawing has bounds. How long it takes
// is logged.
func TestPageOfManyProcesses(t *testing.T) {
	l, b, _ := openView(t, newSource(500), "")
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { many(l, end) })
	defer running.Wait()
	defer close(end)
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 500 &&
		document.querySelectorAll("#threads tbody tr").length == 300 && view.objects("CorrelatorThread").size > 1500`, nil)
	b.poll(`view.transaction != null`, func() { b.Click("#transactions tbody tr") }) // rows move below the mouse
	b.poll(`view.flame.boxes.length > 20`, nil)
	read := func() (draws, millis, now float64) {
		text := b.Eval(`[view.statistics.draws, view.statistics.millis, performance.now()].join(" ")`)
		_, err := fmt.Sscan(strings.Trim(text, `"`), &draws, &millis, &now)
		assert.NilError(t, err)
		return draws, millis, now
	}
	draws, millis, begun := read()
	b.poll(fmt.Sprintf("performance.now() > %f", begun+5000), nil)
	draws2, millis2, ended := read()
	b.shoot("many")
	most := (ended-begun)/minPause + 1
	assert.Check(t, draws2 != draws && draws2-draws <= most, "%v drawings in %v ms", draws2-draws, ended-begun)
	got := b.Eval(`[...document.querySelectorAll("tbody")].map(body => body.rows.length).join()`)
	assert.Check(t, got == `"500,300,50"`, "rows: %s", got)
	b.Do(chromedp.EmulateViewport(390, 1800))
	b.poll(`innerWidth == 390 && view.flame.canvas.clientWidth <= 390`, nil)
	got = b.Eval("document.documentElement.scrollWidth")
	assert.Check(t, got == "390", "on a phone it is %s wide", got)
	b.shoot("phone")
	t.Logf("%.1f drawings a second, of %.1f ms", (draws2-draws)/(ended-begun)*1000, (millis2-millis)/(draws2-draws))
}

// minPause is MIN_PAUSE of the page: milliseconds between two drawings.
const minPause = 400

// Stacks of any form have bounds in the page, too: of the frames that are drawn, and of what is done for
// each of them.
func TestPageOfHostileStacks(t *testing.T) {
	_, b, _ := openView(t, newSource(0), "")
	got := b.Eval("MIN_PAUSE")
	assert.Check(t, got == fmt.Sprint(minPause), "a pause of %s ms", got)
	const show = `view.flame.show([...Array(500).keys()].map(i =>
		({frames: [...Array(300).keys()].map(depth => "a.".repeat(250) + i + "." + depth), time: 1})))`
	var boxes, depth int
	text := strings.Trim(b.Eval(`[`+show+`, view.flame.boxes.length, Math.max(...view.flame.boxes.map(b => b.depth))].slice(1).join(" ")`), `"`)
	if _, err := fmt.Sscan(text, &boxes, &depth); err != nil || boxes < 5000 || boxes > 10000 || depth != boxes/500-1 {
		t.Errorf("%s boxes and levels, %v", text, err)
	}
	// Each letter of a name is read three times at most.
	const reads = `(text => {
		let reads = 0;
		fit(new Proxy({}, {get: (_, key) => {
			if (key === "length") return text.length;
			if (key === "slice") return (...args) => text.slice(...args);
			reads++;
			return text[key];
		}}), 20);
		return reads <= 3 * text.length;
	})`
	for _, text := range []string{`"a.".repeat(512)`, `".".repeat(1024)`, `"a".repeat(1024)`, `"a.".repeat(512) + "b".repeat(99)`} {
		assert.Check(t, b.Eval(reads+"("+text+")") == "true", "%s takes too many steps", text)
	}
}

// What a name is qualified with goes first when there is no room for it.
func TestPageShortensNames(t *testing.T) {
	_, b, _ := openView(t, newSource(0), "")
	for _, c := range []struct {
		name    string
		letters int
		want    string
	}{
		{"com.example.Inner.run", 21, "com.example.Inner.run"}, {"com.example.Inner.run", 20, "example.Inner.run"},
		{"com.example.Inner.run", 9, "Inner.run"}, {"com.example.Inner.run", 4, "run"},
		{"com.example.Inner.run", 2, "r…"}, {"com.example.Inner.run", 1, ""},
		{"/usr/lib/libc.so+0x10", 12, "libc.so+0x10"}, {"libc.so.6", 5, "so.6"}, {"_Z1fv.constprop.0", 5, "cons…"},
		{"std::vector<a::b>::push", 20, "vector<a::b>::push"}, {"std::vector<a::b>::push", 10, "vector<a:…"},
		{"f(a.b.c)", 5, "f(a.…"}, {"a...b", 2, "b"}, {"ends.", 3, "en…"}, {"", 5, ""},
	} {
		if got := b.Eval(fmt.Sprintf("fit(%q, %d)", c.name, c.letters)); got != fmt.Sprintf("%q", c.want) {
			t.Errorf("%q in %d letters: %s, want %q", c.name, c.letters, got, c.want)
		}
	}
}
