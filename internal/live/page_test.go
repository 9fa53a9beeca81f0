package live

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"correlator/internal/agent"
	"correlator/internal/testenv"
	"correlator/profile"
)

// freeAddress returns an address at which nobody listens.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// openView returns a Live with the page at the address, and the page.
func openView(t *testing.T, source Source, secret string) (*Live, *browser, string) {
	t.Helper()
	testenv.NeedTool(t, "chromium")
	address := freeAddress(t)
	l := openLive(t, Config{Listen: []string{"ws://" + address}, Secret: secret})
	l.Start(source)
	return l, openPage(t, address), address
}

// feeder feeds samples of threads, each in a transaction of its own with the same number.
func feeder(l *Live, stack *profile.Stack, threads ...int) func() {
	return func() {
		for _, tid := range threads {
			s := newSample(1000+tid%2, tid, byte(tid), 1, time.Now())
			s.Stack = stack
			l.Sampled(s)
		}
	}
}

func TestPage(t *testing.T) {
	source := newSource(2)
	l, b, _ := openView(t, source, "")
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 2`, nil)
	if got := column(b.rows("processes"), 2); got != "shop-0 shop-1" {
		t.Errorf("services %q", got)
	}
	b.poll(`document.querySelector("#threads .empty").checkVisibility()`, nil)

	// Rows appear, change and vanish.
	stack := frames("com.example.Inner.run", "com.example.Outer.main")
	feed := feeder(l, stack, 7, 8)
	b.poll(`document.querySelectorAll("#transactions tbody tr").length == 2 &&
		document.querySelectorAll("#threads tbody tr").length == 2`, feed)
	if got := column(b.rows("threads"), 1); !strings.Contains(got, "worker-7") || !strings.Contains(got, "worker-8") {
		t.Errorf("threads %q", got)
	}
	b.poll(`document.querySelectorAll("#transactions tbody tr").length == 1`, feeder(l, stack, 8))

	// The flame graph of what is clicked grows.
	b.do(chromedp.Click("#transactions tbody tr"))
	b.poll(`view.flame.boxes.map(b => b.node.name).join() == "com.example.Outer.main,com.example.Inner.run"`,
		feeder(l, stack, 8))
	before := b.eval("view.flame.root.time")
	other := frames("com.example.Other.run", "com.example.Outer.main")
	b.poll(`view.flame.root.time > `+before+` && view.flame.boxes.length == 3`, feeder(l, other, 8))
	b.shoot("page")

	// Keys: into the graph, to the callee, in full, and back.
	b.do(chromedp.Focus("canvas"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	if got := b.eval(`document.querySelector("#flame output").textContent`); !strings.Contains(got, "com.example.Inner.run: ") &&
		!strings.Contains(got, "com.example.Other.run: ") {
		t.Errorf("the chosen frame: %s", got)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	if got := b.eval("[view.flame.zoom.length, document.querySelector('#flame button').hidden]"); got != "[2,false]" {
		t.Errorf("zoom: %s", got)
	}
	b.shoot("zoom")
	b.do(chromedp.KeyEvent(kb.Escape))
	if got := b.eval("view.flame.zoom.length"); got != "0" {
		t.Errorf("zoom: %s", got)
	}

	// It stays when the transaction has ended.
	b.poll(`document.querySelectorAll("#transactions tbody tr").length == 0`, nil)
	if got := b.eval("view.flame.boxes.length"); got != "3" {
		t.Errorf("%s frames after the end", got)
	}
	none := []agent.ProcessStatus{}
	source.processes.Store(&none)
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 0`, nil)
}

func TestPageTablesByKeys(t *testing.T) {
	l, b, _ := openView(t, newSource(4), "")
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 4`, nil)
	feed := feeder(l, frames("main"), 7, 8)
	b.poll(`document.querySelectorAll("#threads tbody tr").length == 2`, feed)
	b.do(chromedp.Focus("#processes tbody tr"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
	if got := b.eval("view.process"); got != `"host-id\n1001"` {
		t.Errorf("chosen: %s", got)
	}
	b.poll(`document.querySelectorAll("#threads tbody tr").length == 1`, feed)
	if got := column(b.rows("threads"), 1); got != "worker-7" {
		t.Errorf("threads of the process: %q", got)
	}
	b.do(chromedp.Click("#all"))
	b.do(chromedp.SendKeys("#filter", "SHOP-3"))
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 1`, nil)
	if got := column(b.rows("processes"), 2); got != "shop-3" {
		t.Errorf("filtered: %q", got)
	}
}

func TestPageShowsTextsAsTheyAre(t *testing.T) {
	const evil = `<img src=x onerror="window.evil=1"><script>window.evil=1</script>` + "\u202e"
	source := newSource(1)
	(*source.processes.Load())[0].ServiceName = evil
	(*source.processes.Load())[0].LastError = &agent.ProcessError{Message: evil}
	l, b, _ := openView(t, source, "")
	s := newSample(1000, 7, 7, 1, time.Time{})
	s.Thread, s.Resource.Name, s.Stack = evil, evil, frames(evil, "constructor", "__proto__")
	feed := func() {
		s.At = time.Now()
		l.Sampled(s)
	}
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 1 &&
		document.querySelectorAll("#transactions tbody tr").length == 1 &&
		document.querySelectorAll("#threads tbody tr").length == 1`, feed)
	for section, i := range map[string]int{"processes": 2, "threads": 1, "transactions": 4} {
		if got := b.rows(section)[0][i]; got != evil {
			t.Errorf("%s: %q", section, got)
		}
	}
	b.do(chromedp.Click("#threads tbody tr"))
	b.poll(`view.flame.boxes.length == 3`, feed)
	if got := b.eval(`[typeof window.evil, document.images.length, document.scripts.length]`); got != `["undefined",0,4]` {
		t.Errorf("texts are taken for HTML: %s", got)
	}
	b.shoot("hostile")
}

func TestPageAsksForSecret(t *testing.T) {
	l, b, address := openView(t, newSource(1), "s3cret")
	b.do(chromedp.WaitVisible("#secret"))
	b.do(chromedp.SendKeys("#secret", "wrong\r"))
	b.poll(`!document.querySelector("#login").hidden && document.querySelector("#state").textContent == "the secret is wrong"`, nil)
	b.shoot("login")
	b.do(chromedp.SendKeys("#secret", strings.Repeat("\b", len("wrong"))+"s3cret\r"))
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 1 && document.querySelector("#login").hidden`, nil)

	// It connects again, and needs to be told the secret once only.
	shutdown(t, l)
	b.poll(`document.body.classList.contains("lost")`, nil)
	if got := len(b.rows("processes")); got != 1 {
		t.Errorf("%d rows while the connection is lost", got)
	}
	l = openLive(t, Config{Listen: []string{"ws://" + address}, Secret: "s3cret"})
	l.Start(newSource(3))
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 3 && document.querySelector("#state").textContent == "live"`, nil)
}

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

// TestPageOfManyProcesses reports how long drawing takes.
func TestPageOfManyProcesses(t *testing.T) {
	l, b, _ := openView(t, newSource(500), "")
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { many(l, end) })
	defer running.Wait()
	defer close(end)
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 500 &&
		document.querySelectorAll("#threads tbody tr").length == 300 && view.objects("CorrelatorThread").size > 1500`, nil)
	b.do(chromedp.Click("#transactions tbody tr"))
	b.poll(`view.flame.boxes.length > 20`, nil)
	read := func() (draws, millis, now float64) {
		text := b.eval(`[view.statistics.draws, view.statistics.millis, performance.now()].join(" ")`)
		if _, err := fmt.Sscan(strings.Trim(text, `"`), &draws, &millis, &now); err != nil {
			t.Fatal(err)
		}
		return draws, millis, now
	}
	draws, millis, begun := read()
	b.poll(fmt.Sprintf("performance.now() > %f", begun+5000), nil)
	draws2, millis2, ended := read()
	b.shoot("many")
	t.Logf("%.1f drawings a second, of %.1f ms", (draws2-draws)/(ended-begun)*1000, (millis2-millis)/(draws2-draws))
}
