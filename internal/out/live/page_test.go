package live

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
	"correlator/internal/out/live/page"
	"correlator/profile"
)

// freeAddress returns an address at which nobody listens.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(tb, err)
	defer l.Close()
	return l.Addr().String()
}

// openView returns a Live with the page at the address, and the page.
func openView(t *testing.T, source Source, secret string) (*Live, *window, string) {
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
	got := column(b.rows("processes"), 2)
	assert.Check(t, got == "shop-0 shop-1", "services %q", got)
	b.poll(`document.querySelector("#threads .empty").checkVisibility()`, nil)
	got = b.Eval("getComputedStyle(document.body).backgroundColor")
	assert.Check(t, got == `"rgb(255, 255, 255)"`, "the background is %s: colors.css is missing", got)

	// Rows appear, change and vanish.
	stack := frames("com.example.Inner.run", "com.example.Outer.main")
	feed := feeder(l, stack, 7, 8)
	b.poll(`document.querySelectorAll("#transactions tbody tr").length == 2 &&
		document.querySelectorAll("#threads tbody tr").length == 2`, feed)
	got = column(b.rows("threads"), 1)
	assert.Check(t, strings.Contains(got, "worker-7") && strings.Contains(got, "worker-8"), "threads %q", got)
	b.poll(`document.querySelectorAll("#transactions tbody tr").length == 1`, feeder(l, stack, 8))

	// The flame graph of what is clicked grows.
	b.Click("#transactions tbody tr")
	b.poll(`view.flame.boxes.map(b => b.node.name).join() == "com.example.Outer.main,com.example.Inner.run"`,
		feeder(l, stack, 8))
	assert.Check(t, b.Eval(`document.querySelector("#flame small").textContent.includes("lack stacks")`) == "false",
		"time without stacks is shown, of which there is none")
	before := b.Eval("view.flame.root.time")
	other := frames("com.example.Other.run", "com.example.Outer.main")
	feedOther, feedUnclicked := feeder(l, other, 8), feeder(l, frames("not.clicked"), 9)
	b.poll(`view.flame.root.time > `+before+` && view.flame.boxes.length == 3 &&
		document.querySelectorAll("#transactions tbody tr").length == 2`, func() { feedOther(); feedUnclicked() })
	b.shoot("page")
	b.poll(`/samples since \d\d:\d\d:\d\d/.test(document.querySelector("#flame small").textContent)`, nil)
	got = b.Eval(`[...view.objects("CorrelatorStack").values()].map(o => o.frames.length)`)
	assert.Check(t, got == "[2,2]", "frames of what was not clicked, too: %s", got)

	// What has no stack, as there was no room for that, is told.
	l.tracker.mu.Lock()
	for _, tx := range l.tracker.transactions {
		tx.lost = 1500 * time.Millisecond
	}
	l.tracker.mu.Unlock()
	b.poll(`document.querySelector("#flame small").textContent.includes("1.5 s more lack stacks")`, feeder(l, stack, 8))
	b.shoot("lost-stacks")

	// Keys: into the graph, to the callee, in full, and back.
	b.Do(chromedp.Focus("canvas"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	if got := b.Eval(`document.querySelector("#flame output").textContent`); !strings.Contains(got, "com.example.Inner.run: ") &&
		!strings.Contains(got, "com.example.Other.run: ") {
		t.Errorf("the chosen frame: %s", got)
	}
	b.Do(chromedp.KeyEvent(kb.Enter))
	got = b.Eval("[view.flame.zoom.length, document.querySelector('#flame button').hidden]")
	assert.Check(t, got == "[2,false]", "zoom: %s", got)
	b.shoot("zoom")
	b.Do(chromedp.KeyEvent(kb.Escape))
	got = b.Eval("[view.flame.zoom.length, view.transaction != null]")
	assert.Check(t, got == "[0,true]", "zoom: %s", got)

	// It stays when the transaction has ended.
	b.poll(`document.querySelectorAll("#transactions tbody tr").length == 0`, nil)
	got = b.Eval("view.flame.boxes.length")
	assert.Check(t, got == "3", "%s frames after the end", got)

	// When it begins anew, what is drawn does.
	anew := feeder(l, frames("com.example.New.run"), 8)
	b.poll(`view.flame.boxes.map(b => b.node.name).join() == "com.example.New.run"`, anew)

	// Once it is closed, by the button or a key, nobody has joined any stacks.
	b.Click("#close")
	closed := func(how string) {
		t.Helper()
		testenv.Poll(t, patience, "no members of groups of stacks", func() bool {
			return l.broker.Members("CorrelatorTransactionStack")+l.broker.Members("CorrelatorStack") == 0
		})
		got := b.Eval(`[document.querySelector("#flame .empty").checkVisibility(), document.querySelector("#close").hidden,
			document.querySelector("main").className, document.querySelector("#flame small").textContent]`)
		assert.Check(t, got == `[true,true,"",""]`, "after %s: %s", how, got)
	}
	closed("the button")
	b.poll(`document.querySelectorAll("#transactions tbody tr").length == 1`, anew)
	b.Click("#transactions tbody tr")
	b.poll(`view.flame.boxes.length == 1`, anew)
	assert.Check(t, l.broker.Members("CorrelatorTransactionStack") == 1, "no member while it is shown")
	b.Do(chromedp.Focus("canvas"), chromedp.KeyEvent(kb.Escape))
	closed("Escape")

	none := []agent.ProcessStatus{}
	source.processes.Store(&none)
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 0`, nil)
}

func TestPageWithoutProcesses(t *testing.T) {
	_, b, _ := openView(t, newSource(0), "")
	b.poll(`document.querySelector("#facts").textContent.includes("0 processes")`, nil)
	got := b.Eval(`document.querySelector("#processes .empty").checkVisibility() && document.body.innerText`)
	assert.Check(t, strings.
		Contains(got, "correlator check"), "it does not say what to do: %s", got)
	b.shoot("empty")
}

func TestPageTablesByKeys(t *testing.T) {
	l, b, _ := openView(t, newSource(4), "")
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 4`, nil)
	feed := feeder(l, frames("main"), 7, 8)
	b.poll(`document.querySelectorAll("#threads tbody tr").length == 2`, feed)
	b.Do(chromedp.Focus("#processes tbody tr"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
	got := b.Eval("view.process")
	assert.Check(t, got == `"host-id\n1001"`, "chosen: %s", got)
	b.poll(`document.querySelectorAll("#threads tbody tr").length == 1`, feed)
	got = column(b.rows("threads"), 1)
	assert.Check(t, got == "worker-7", "threads of the process: %q", got)
	b.Click("#all")
	b.Do(chromedp.SendKeys("#filter", "SHOP-3"))
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 1`, nil)
	got = column(b.rows("processes"), 2)
	assert.Check(t, got == "shop-3", "filtered: %q", got)
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
		got := b.rows(section)[0][i]
		assert.Check(t, got == evil, "%s: %q", section, got)
	}
	b.Click("#threads tbody tr")
	b.poll(`view.flame.boxes.length == 3`, feed)
	got := b.Eval(`[typeof window.evil, document.images.length, document.scripts.length]`)
	assert.Check(t, got == `["undefined",0,4]`, "texts are taken for HTML: %s", got)
	b.shoot("hostile")
}

func TestPageAsksForSecret(t *testing.T) {
	l, b, address := openView(t, newSource(1), "s3cret")
	b.Do(chromedp.WaitVisible("#secret"))
	b.Do(chromedp.SendKeys("#secret", "wrong\r"))
	b.poll(`!document.querySelector("#login").hidden && document.querySelector("#state").textContent == "the secret is wrong"`, nil)
	b.shoot("login")
	b.Do(chromedp.SendKeys("#secret", strings.Repeat("\b", len("wrong"))+"s3cret\r"))
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 1 && document.querySelector("#login").hidden`, nil)

	// It connects again, and needs to be told the secret once only.
	shutdown(t, l)
	b.poll(`document.body.classList.contains("lost")`, nil)
	b.shoot("lost")
	got := len(b.rows("processes"))
	assert.Check(t, got == 1, "%d rows while the connection is lost", got)
	l = openLive(t, Config{Listen: []string{"ws://" + address}, Secret: "s3cret"})
	l.Start(newSource(3))
	b.poll(`document.querySelectorAll("#processes tbody tr").length == 3 && document.querySelector("#state").textContent == "live"`, nil)
}

// A connection that is dead, but has not ended, is not shown as one that lives, and made anew.
func TestPageWhileConnectionIsDead(t *testing.T) {
	testenv.NeedTool(t, "chromium")
	address := freeAddress(t)
	l := openLive(t, Config{Listen: []string{"ws://" + address}})
	l.Start(newSource(1))
	r := newRelay(t, address)
	b := openPage(t, r.address)
	const state = `document.querySelector("#state").textContent`
	b.poll(state+` == "live" && document.querySelectorAll("#processes tbody tr").length == 1`, nil)
	b.Eval("[view.first = view.bus].length")
	r.gate.Lock()
	b.poll(state+`.startsWith("no news for ") && document.body.classList.contains("lost")`, nil)
	b.shoot("dead")
	b.poll(`view.next !== view.first`, nil)
	got := len(b.rows("processes"))
	assert.Check(t, got == 1, "%d rows while the connection is dead", got)
	r.gate.Unlock()
	b.poll(state+` == "live" && view.bus !== view.first`, nil)
}

// One that has nothing to say is asked, and its answer is news.
func TestPageOfQuietBroker(t *testing.T) {
	testenv.NeedTool(t, "chromium")
	address := freeAddress(t)
	quiet := broker.New(broker.Options{Page: page.Handler()})
	_, err := quiet.ListenURI("ws://" + address)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = quiet.Shutdown(context.Background()) })
	b := openPage(t, address)
	b.poll(`view.bus.ready === true`, nil)
	b.Eval("view.heard = view.bus.heard")
	b.poll(`view.bus.heard > view.heard + PING_AFTER && document.querySelector("#state").textContent == "live"`, nil)
}

// That a broker refuses the page does not mean that a secret is wrong for which it has not asked; what the
// broker says about that is shown.
func TestPageIsRefused(t *testing.T) {
	for _, c := range []struct {
		reason  string
		options broker.Options
	}{
		{"the broker refuses this page", broker.Options{Auth: broker.Auth{Rules: []broker.Rule{{Accept: false}}}}},
		{"this server serves 1 guests at most", broker.Options{Limits: broker.Limits{Guests: 2, Reserve: 1}}},
	} {
		testenv.NeedTool(t, "chromium")
		address := freeAddress(t)
		c.options.Page = page.Handler()
		refusing := broker.New(c.options)
		t.Cleanup(func() { _ = refusing.Shutdown(context.Background()) })
		_, err := refusing.ListenURI("ws://" + address)
		assert.NilError(t, err)
		if c.options.Limits.Guests > 0 {
			dial(t, "ws://"+address, "")
		}
		b := openPage(t, address)
		b.poll(fmt.Sprintf(`document.querySelector("#state").textContent == "%s; connecting again" &&
			document.querySelector("#login").hidden`, c.reason), nil)
		accepted := refusing.Counters().Accepted
		testenv.Poll(t, patience, "another attempt", func() bool { return refusing.Counters().Accepted > accepted })
	}
}
