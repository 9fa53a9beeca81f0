package live

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"correlator/dots/broker"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/browser"
	"correlator/internal/out/agent"
	"correlator/internal/out/live/page"
	"correlator/procscan"
	"correlator/profile"
)

// The page of the live view, in one browser. Each part has a broker of its own.
func TestPage(t *testing.T) {
	b := browser.Open(t, "about:blank", 1500, 950)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *window)
	}{
		{"flame graph", testPageFlameGraph}, {"no processes", testPageWithoutProcesses}, {"keys", testPageTablesByKeys},
		{"hostile texts", testPageShowsTextsAsTheyAre}, {"graphs", testPageDrawsGraphs}, {"ids", testPageCopiesIDs},
		{"secret", testPageAsksForSecret},
		{"dead connection", testPageWhileConnectionIsDead}, {"quiet broker", testPageOfQuietBroker},
		{"refused", testPageIsRefused}, {"waits", testPageWaits}, {"hostile stacks", testPageOfHostileStacks},
		{"names", testPageShortensNames}, {"any process", testPageOfAnyProcess},
		{"timeline", testPageTimeline}, {"no timeline", testPageWithoutTimeline},
		// the last ones change the window's size
		{"many processes", testPageOfManyProcesses}, {"fits", testPageFits}, {"timeline fits", testPageTimelineFits},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, &window{b.For(t), t}) })
	}
}

// window shows the page of the live view.
type window struct {
	*browser.Page
	t *testing.T
}

// poll waits until an expression is true.
func (w *window) poll(expression string, meanwhile func()) {
	w.t.Helper()
	testenv.Poll(w.t, patience, expression, func() bool {
		if meanwhile != nil {
			meanwhile()
		}
		return w.Eval(expression) == "true"
	})
}

// want checks what an expression is as JSON.
func (w *window) want(expression, want string) {
	w.t.Helper()
	got := w.Eval(expression)
	assert.Check(w.t, got == want, "%s: %s, not %s", expression, got, want)
}

// pollRows waits until a table has a number of rows.
func (w *window) pollRows(section string, n int, meanwhile func()) {
	w.t.Helper()
	w.poll(fmt.Sprintf(`document.querySelectorAll("#%s tbody tr").length == %d`, section, n), meanwhile)
}

// column returns the texts of a column of a table, with those that are beside each other in it apart.
func (w *window) column(section string, i int) (texts []string) {
	w.t.Helper()
	w.Decode(fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].map(r =>
		[...r.cells[%d].querySelectorAll("bdi")].map(b => b.textContent).join(" · ") || r.cells[%[2]d].textContent)`,
		section, i), &texts)
	return texts
}

// shoot keeps a screenshot, with a light and a dark scheme, if somebody wants to look at it.
func (w *window) shoot(name string) {
	w.t.Helper()
	if !w.KeepsScreenshots() {
		return
	}
	for _, scheme := range []string{"dark", "light"} {
		w.Prefer(scheme)
		w.Screenshot(name + "-" + scheme)
	}
}

func (w *window) open(address string) {
	w.t.Helper()
	w.Do(chromedp.Navigate("http://" + address + "/"))
}

// view opens the page of a new Live.
func (w *window) view(source Source, secret string) (l *Live, address string) {
	w.t.Helper()
	l = openLive(w.t, Config{Listen: []string{newSocket(w.t)}, Secret: secret})
	address = listen(w.t, l.broker)
	l.Start(source)
	w.open(address)
	return l, address
}

// listen has a broker listen at a port, too, and returns the address.
func listen(t *testing.T, b *broker.Broker) string {
	t.Helper()
	address, err := b.ListenURI("ws://127.0.0.1:0")
	assert.NilError(t, err)
	return address.String()
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

// shownNames is an expression of the names in the flame graph.
const shownNames = `view.flame.boxes.map(b => b.node.name).join()`

func testPageFlameGraph(t *testing.T, w *window) {
	source := newSource(2)
	l, _ := w.view(source, "")
	w.pollRows("processes", 2, nil)
	got := w.column("processes", 0)
	assert.Check(t, slices.Equal(got, []string{"shop-0", "shop-1"}), "services %q", got)
	w.poll(`document.querySelector("#threads .empty").checkVisibility()`, nil)
	w.want("getComputedStyle(document.body).backgroundColor", `"rgb(255, 255, 255)"`) // by colors.css

	// Rows appear, change and vanish.
	stack := frames("com.example.Inner.run", "com.example.Outer.main")
	feed := feeder(l, stack, 7, 8)
	w.pollRows("transactions", 2, feed)
	w.pollRows("threads", 2, feed)
	threads := w.column("threads", 0)
	slices.Sort(threads)
	assert.Check(t, slices.Equal(threads, []string{"worker-7 · shop-1", "worker-8 · shop-0"}), "threads %q", threads)
	l.tracker.age(7)
	w.pollRows("transactions", 1, feeder(l, stack, 8))

	// The flame graph of what is clicked grows.
	w.Click("#transactions tbody tr")
	w.poll(shownNames+` == "com.example.Outer.main,com.example.Inner.run"`, feeder(l, stack, 8))
	w.want(`document.querySelector("#flame small").textContent.includes("without stacks")`, "false")
	before := w.Eval("view.flame.root.time")
	other := frames("com.example.Other.run", "com.example.Outer.main")
	feedOther, feedUnclicked := feeder(l, other, 8), feeder(l, frames("not.clicked"), 9)
	w.poll(`view.flame.root.time > `+before+` && view.flame.boxes.length == 3 &&
		document.querySelectorAll("#transactions tbody tr").length == 2`, func() { feedOther(); feedUnclicked() })
	w.shoot("page")
	w.poll(`/samples since \d\d:\d\d:\d\d/.test(document.querySelector("#flame small").textContent)`, nil)
	w.want(`[...view.objects("CorrelatorStack").values()].map(o => o.frames.length)`, "[2,2]") // of what was clicked

	// What has no stack, as there was no room for that, is told.
	l.tracker.mu.Lock()
	for _, tx := range l.tracker.transactions {
		tx.lost = 1500 * time.Millisecond
	}
	l.tracker.mu.Unlock()
	w.poll(`document.querySelector("#flame small").textContent.includes("1.5 s more without stacks")`, feeder(l, stack, 8))
	w.shoot("lost-stacks")

	// Keys: into the graph, to the callee, in full, and back.
	w.Do(chromedp.Focus("#flame canvas"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	w.want(`/com.example.(Inner|Other).run: /.test(document.querySelector("#flame output").textContent)`, "true")
	w.Do(chromedp.KeyEvent(kb.Enter))
	w.want("[view.flame.zoom.length, view.flame.back.hidden]", "[2,false]")
	w.shoot("zoom")
	w.Do(chromedp.KeyEvent(kb.Escape))
	w.want("[view.flame.zoom.length, view.transaction != null]", "[0,true]")

	// It stays when the transaction has ended. When it begins anew, what is drawn does.
	l.tracker.age(8, 9)
	w.pollRows("transactions", 0, nil)
	w.want("view.flame.boxes.length", "3")
	anew := feeder(l, frames("com.example.New.run"), 8)
	w.poll(shownNames+` == "com.example.New.run"`, anew)

	// Once it is closed, by the button or a key, nobody has joined any stacks.
	w.Click("#close")
	closed := func() {
		t.Helper()
		testenv.Poll(t, patience, "no members of groups of stacks", func() bool {
			return l.broker.Members("CorrelatorTransactionStack")+l.broker.Members("CorrelatorStack") == 0
		})
		w.want(`[document.querySelector("#flame .empty").checkVisibility(), document.querySelector("#close").hidden,
			document.querySelector("main").className, document.querySelector("#flame small").textContent]`, `[true,true,"",""]`)
	}
	closed()
	w.pollRows("transactions", 1, anew)
	w.Click("#transactions tbody tr")
	w.poll(`view.flame.boxes.length == 1`, anew)
	assert.Check(t, l.broker.Members("CorrelatorTransactionStack") == 1, "no member while it is shown")
	w.Do(chromedp.Focus("#flame canvas"), chromedp.KeyEvent(kb.Escape))
	closed()

	source.processes.Store(&[]agent.ProcessStatus{})
	w.pollRows("processes", 0, nil)
}

func testPageWithoutProcesses(_ *testing.T, w *window) {
	w.view(newSource(0), "")
	w.poll(`document.querySelector("#facts").textContent.includes("0 processes")`, nil)
	w.want(`document.querySelector("#processes .empty").checkVisibility() &&
		document.body.innerText.includes("correlator check")`, "true")
	w.shoot("empty")
}

func testPageTablesByKeys(t *testing.T, w *window) {
	l, _ := w.view(newSource(4), "")
	w.pollRows("processes", 4, nil)
	feed := feeder(l, frames("main"), 7, 8)
	w.pollRows("threads", 2, feed)
	w.Do(chromedp.Focus("#processes tbody tr"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
	w.want("view.process", `"host-id\n1001"`)
	w.pollRows("threads", 1, feed)
	got := w.column("threads", 0)
	assert.Check(t, got[0] == "worker-7 · shop-1", "threads of the process: %q", got)
	w.Click("#all")
	w.Do(chromedp.SendKeys("#filter", "SHOP-3"))
	w.pollRows("processes", 1, nil)
	got = w.column("processes", 0)
	assert.Check(t, got[0] == "shop-3", "filtered: %q", got)
}

func testPageShowsTextsAsTheyAre(t *testing.T, w *window) {
	const evil = `<img src=x onerror="window.evil=1"><script>window.evil=1</script>` + "\u202e"
	source := newSource(1)
	(*source.processes.Load())[0].ServiceName = evil
	(*source.processes.Load())[0].LastError = &agent.ProcessError{Message: evil}
	l, _ := w.view(source, "")
	s := newSample(1000, 7, 7, 1, time.Time{})
	s.Thread, s.Resource.Name, s.Stack = evil, evil, frames(evil, "constructor", "__proto__")
	s.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "http.route", Value: evil}})
	feed := func() {
		s.At = time.Now()
		l.Sampled(s)
	}
	for section, want := range map[string]string{"processes": evil, "threads": evil + " · " + evil,
		"transactions": evil + " · " + evil} {
		w.pollRows(section, 1, feed)
		got := w.column(section, 0)[0]
		assert.Check(t, got == want, "%s: %q", section, got)
	}
	w.Click("#threads tbody tr")
	w.poll(`view.flame.boxes.length == 3`, feed)
	w.want(`[typeof window.evil, document.images.length, document.scripts.length]`, `["undefined",0,5]`)
	w.shoot("hostile")
}

// What the threads of the chosen transaction did is shown as it happens, the longest state first with its places, as
// texts; it stays when the transaction has ended, and goes when none is chosen, which ends the accounts.
func testPageWaits(t *testing.T, w *window) {
	const evil = `<img src=x onerror="window.evil=1">` + "\u202e"
	l, _ := w.view(newSource(1), "")
	feed := feeder(l, frames("main"), 7)
	w.pollRows("transactions", 1, feed)
	w.want(`document.querySelector("#waits table").checkVisibility()`, "false")
	w.Click("#transactions tbody tr")
	testenv.Poll(t, patience, "accounts are wanted", func() bool { feed(); return l.TakesAccounts() })
	w.pollRows("waits", 5, func() {
		s := newSample(1001, 7, 7, 1, time.Now())
		l.Sampled(s)
		l.Accounted(newAccount(s, map[profile.ThreadState]time.Duration{profile.OnCPU: 50 * ms, profile.Futex: 90 * ms,
			profile.Net: 400 * time.Microsecond}))
		wait := newWait(s, profile.Futex, 60*ms, evil)
		wait.Wait.Waker = profile.Waker{Kind: profile.ThreadWaker, Thread: evil}
		l.Waited(wait)
	})
	got := w.column("waits", 0)
	assert.DeepEqual(t, got,
		[]string{"lock, queue or sleep (futex)", "\u00a0\u00a0\u00a0" + evil, "\u00a0\u00a0\u00a0[no stack]",
			"on a CPU", "network"})
	assert.Check(t, w.column("waits", 4)[1] == evil && strings.HasSuffix(w.column("waits", 1)[4], "s"), "%q %q",
		w.column("waits", 4), w.column("waits", 1))
	w.want(`[typeof window.evil, document.images.length,
		document.querySelector("#waits table").checkVisibility()]`, `["undefined",0,true]`)
	w.shoot("waits")
	l.tracker.age(7)
	w.pollRows("transactions", 0, nil)
	w.poll(`!view.objects("CorrelatorTransactionWait").size`, nil)
	w.want(`document.querySelectorAll("#waits tbody tr").length`, "5")
	w.Click("#close")
	w.pollRows("waits", 0, nil)
	w.want(`document.querySelector("#waits table").checkVisibility()`, "false")
	testenv.Poll(t, patience, "no accounts are wanted", func() bool { return !l.TakesAccounts() })
}

// A graph is that of the last minute: what is not known is left out, and what is too old.
func testPageDrawsGraphs(t *testing.T, w *window) {
	source := newSource(1)
	source.readAt = map[procscan.ProcessID]time.Time{{PID: 1000, StartTime: 1}: time.Now().Add(time.Hour)}
	w.view(source, "")
	w.Eval(`(view.h = new History(1)).values.length`)
	w.want(`[view.h.add(5, [1]), view.h.add(9, [0.5]), view.h.add(10, [NaN]), view.h.path(0, 10, 1, true)][3]`,
		`"M81.0 20V1.0H82.5V20ZM87.0 20V10.0H88.5V20Z"`)
	w.want(`view.h.path(0, 12, 1, false)`, `"M78.0 1.0H79.5M84.0 10.0H85.5"`)
	w.want(`[view.h.path(0, 67, 1, false), view.h.most(0)]`, `["M1.5 10.0H3.0",1]`)
	w.want(`[view.h.add(68, [2]), view.h.path(0, 68, 2, false), view.h.most(0)]`, `[null,"M0.0 14.5H1.5M88.5 1.0H90.0",2]`)
	w.want(`[view.h.add(70, [1]), view.h.path(0, 70, 2, false)][1]`, `"M85.5 1.0H87.0V10.0H88.5V10.0H90.0"`) // late
	// Each process has its own, with a text for those who do not see it.
	w.poll(`document.querySelector("#processes svg[role=img]")?.getAttribute("aria-label") ==
		"the last minute: CPUs not known, at most 0.00; threads that wait in transactions 0.0, at most 0.0"`, nil)
	source.processes.Store(&[]agent.ProcessStatus{})
	w.poll(`!view.histories.size`, nil)
	w.shoot("graphs")
}

// A click on an id copies it whole, and chooses nothing; what is chosen has its own.
func testPageCopiesIDs(_ *testing.T, w *window) {
	l, _ := w.view(newSource(1), "")
	feed := feeder(l, frames("main"), 8)
	w.pollRows("transactions", 1, feed)
	w.pollRows("threads", 1, feed)
	const told = `document.querySelector("#copied").textContent`
	w.Click("#transactions .id")
	w.poll(told+` == "copied: transaction 0000000000000008" && view.transaction === null`, feed)
	w.Do(chromedp.Focus("#threads tbody tr"), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	w.want(`document.activeElement.getAttribute("aria-label")`, `"copy transaction 0000000000000008"`)
	w.Do(chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.Enter))
	w.poll(`view.transaction !== null`, feed)
	w.Click("#ids .id:last-child")
	w.poll(told+` == "copied: trace 00000000000000000000000000000008"`, feed)
	w.want(`[...document.querySelectorAll("button")].filter(b => b.checkVisibility()).every(b =>
		b.textContent.trim() || b.getAttribute("aria-label"))`, "true")
}

// cutElements are elements that are cut, or that are beside the window.
const cutElements = `[...document.querySelectorAll("header, header *, h2, h2 *, .facts, th, td, button, .scroll, " +
		"#waits, #timeline :is(li, p, .lanes), canvas, svg")]
	.filter(e => e.checkVisibility({contentVisibilityAuto: true}) && !e.closest("#timeline table")).filter(e => {
		const {left, right} = e.getBoundingClientRect();
		return left < 0 || right > innerWidth + 0.5 ||
			e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline";
	}).map(e => e.outerHTML.slice(0, 200))`

// Nothing is cut, whatever device the page is shown on, with and without a transaction that is chosen.
func testPageFits(_ *testing.T, w *window) {
	const service = "checkout-backend-service"
	source := newSource(3)
	for i := range *source.processes.Load() {
		p := &(*source.processes.Load())[i]
		p.ServiceName, p.ServiceEnvironment = service, "production"
		p.ContainerID = strings.Repeat("0123456789abcdef", 4)
	}
	l, _ := w.view(source, "")
	feed := func() {
		s := newSample(1001, 4194304, 7, 1, time.Now())
		s.Thread, s.Resource.Name, s.Stack = "http-nio-8080-e", service, frames("com.example.Inner.run", "main")
		s.TraceID[0], s.TransactionID[0] = 1, 1
		s.Attributes = profile.NewAttributes([]profile.Attribute{{Key: "http.route", Value: "/orders/{id}/items"}})
		l.Sampled(s)
		if l.TakesAccounts() {
			l.Accounted(newAccount(s, map[profile.ThreadState]time.Duration{profile.OnCPU: 1000 * time.Second,
				profile.Futex: 90 * time.Second}))
			wait := newWait(s, profile.Futex, 60*time.Second, "com.example.shop.inventory.InventoryRepository.reserve")
			wait.Wait.Waker = profile.Waker{Kind: profile.ThreadWaker, Thread: "http-nio-8080-e"}
			l.Waited(wait)
		}
	}
	for _, chosen := range []bool{false, true} {
		w.pollRows("threads", 1, feed)
		w.pollRows("transactions", 1, feed)
		if chosen {
			w.Do(chromedp.Focus("#transactions tbody tr"), chromedp.KeyEvent(kb.Enter))
			w.poll(`document.querySelectorAll("#waits tbody tr").length >= 3 && view.flame.boxes.length == 2`, feed)
		}
		for width, height := range map[int64]int64{390: 844, 1024: 768, 1440: 900, 1920: 1080} {
			w.Do(chromedp.EmulateViewport(width, height))
			w.poll(fmt.Sprintf(`innerWidth == %d && view.flame.canvas.clientWidth <= Math.max(1,
				view.flame.canvas.parentElement.clientWidth)`, width), feed)
			w.poll(`document.querySelector("#processes svg") !== null`, feed)
			w.want(`[innerWidth, `+cutElements+`]`, fmt.Sprintf("[%d,[]]", width))
			// What is busiest is in view.
			w.want(`innerWidth < 800 ||
				document.querySelector("#transactions tbody tr").getBoundingClientRect().bottom < innerHeight`, "true")
			w.shoot(fmt.Sprint("fits-", width, "-", chosen))
		}
	}
}

func testPageAsksForSecret(t *testing.T, w *window) {
	l, address := w.view(newSource(1), "s3cret")
	w.Do(chromedp.WaitVisible("#secret"), chromedp.SendKeys("#secret", "wrong\r"))
	w.poll(`!document.querySelector("#login").hidden &&
		document.querySelector("#state").textContent == "the secret is wrong"`, nil)
	w.shoot("login")
	w.Do(chromedp.SendKeys("#secret", strings.Repeat("\b", len("wrong"))+"s3cret\r"))
	w.pollRows("processes", 1, nil)
	w.want(`document.querySelector("#login").hidden`, "true")

	// It connects again, and needs to be told the secret once only.
	shutdown(t, l)
	w.poll(`document.body.classList.contains("lost")`, nil)
	w.shoot("lost")
	w.pollRows("processes", 1, nil)
	l = openLive(t, Config{Listen: []string{"ws://" + address}, Secret: "s3cret"})
	l.Start(newSource(3))
	w.pollRows("processes", 3, nil)
	w.poll(state+` == "live"`, nil)
}

// state is an expression of what the page says of its connection.
const state = `document.querySelector("#state").textContent`

// A connection that is dead, but has not ended, is not shown as one that lives, and made anew. So that this
// takes no time, what was heard and asked last becomes older.
func testPageWhileConnectionIsDead(t *testing.T, w *window) {
	l := openLive(t, Config{Listen: []string{newSocket(t)}})
	l.Start(newSource(1))
	r := newRelay(t, listen(t, l.broker))
	w.open(r.address)
	w.poll(state+` == "live" && document.querySelectorAll("#processes tbody tr").length == 1`, nil)
	w.Eval("[view.first = view.bus].length")
	r.gate.Lock()
	unfreeze := sync.OnceFunc(r.gate.Unlock)
	defer unfreeze()
	w.Eval("view.first.heard -= PING_AFTER")
	w.poll(`view.first.asks !== null`, nil)
	w.Eval("view.first.asks -= QUIET")
	w.poll(state+`.startsWith("no news for ") && document.body.classList.contains("lost")`, nil)
	w.want(`view.next === view.first`, "true")
	w.shoot("dead")
	w.Eval("view.first.asks -= GIVE_UP")
	w.poll(`view.next !== view.first`, nil)
	w.pollRows("processes", 1, nil)
	unfreeze()
	w.poll(state+` == "live" && view.bus !== view.first`, nil)
}

// serve has a broker serve the page that is no Live.
func serve(t *testing.T, options broker.Options) (b *broker.Broker, address string) {
	t.Helper()
	options.Page = page.Handler()
	b = broker.New(options)
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
	return b, listen(t, b)
}

// A broker that has nothing to say is asked, and its answer is news.
func testPageOfQuietBroker(t *testing.T, w *window) {
	_, address := serve(t, broker.Options{})
	w.open(address)
	w.poll(`view.bus.ready === true`, nil)
	w.Eval("view.heard = view.bus.heard -= PING_AFTER")
	w.poll(`view.bus.heard > view.heard && view.bus.asks === null && `+state+` == "live"`, nil)
}

// That a broker refuses the page does not mean that a secret is wrong for which it has not asked; what the
// broker says about that is shown.
func testPageIsRefused(t *testing.T, w *window) {
	for reason, options := range map[string]broker.Options{
		"the broker refuses this page":        {Auth: broker.Auth{Rules: []broker.Rule{{Accept: false}}}},
		"this server serves 1 guests at most": {Limits: broker.Limits{Guests: 2, Reserve: 1}},
	} {
		b, address := serve(t, options)
		if options.Limits.Guests > 0 {
			dial(t, "ws://"+address, "")
		}
		w.open(address)
		w.poll(state+fmt.Sprintf(` == "%s; connecting again" && document.querySelector("#login").hidden`, reason), nil)
		accepted := b.Counters().Accepted
		testenv.Poll(t, patience, "another attempt", func() bool { return b.Counters().Accepted > accepted })
	}
}

// Stacks of any form have bounds in the page, too: of the frames that are drawn, and of what is done for
// each of them.
func testPageOfHostileStacks(t *testing.T, w *window) {
	w.view(newSource(0), "")
	const show = `view.flame.show([...Array(500).keys()].map(i =>
		({frames: [...Array(300).keys()].map(depth => "a.".repeat(250) + i + "." + depth), time: 1})))`
	var drawn struct{ Boxes, Depth int }
	w.Decode(`[`+show+`, {boxes: view.flame.boxes.length, depth: Math.max(...view.flame.boxes.map(b => b.depth))}][1]`,
		&drawn)
	assert.Check(t, drawn.Boxes >= 5000 && drawn.Boxes <= 10000 && drawn.Depth == drawn.Boxes/500-1, "%+v", drawn)
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
	w.want(`["a.".repeat(512), ".".repeat(1024), "a".repeat(1024), "a.".repeat(512) + "b".repeat(99)].every(`+reads+`)`,
		"true")
}

// What a name is qualified with goes first when there is no room for it.
func testPageShortensNames(_ *testing.T, w *window) {
	w.view(newSource(0), "")
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
		w.want(fmt.Sprintf("fit(%q, %d)", c.name, c.letters), fmt.Sprintf("%q", c.want))
	}
}

// many returns what feeds samples of 100 processes with 400 threads, the more of the first ones.
func many(l *Live) (feed func()) {
	var stacks []*profile.Stack
	for range 100 {
		var path []string
		for depth := range 10 + rand.IntN(30) {
			path = append(path, fmt.Sprint("com.example.shop.", depth, rand.IntN(2)))
		}
		slices.Reverse(path)
		stacks = append(stacks, frames(path...))
	}
	return func() {
		for tid := range 400 {
			s := newSample(1000+tid%100, tid+1, 0, 1, time.Now())
			s.TraceID[0], s.TransactionID[0], s.TransactionID[1] = 1, byte(tid), byte(tid>>8)
			s.Stack = stacks[rand.IntN(len(stacks))]
			if tid < 60 {
				s.Count = 5
			}
			l.Sampled(s)
		}
	}
}

// However much there is to show, and whoever names it, the work of drawing has bounds.
func testPageOfManyProcesses(_ *testing.T, w *window) {
	l, _ := w.view(newSource(100), "")
	feed := many(l)
	w.pollRows("processes", 100, nil)
	w.pollRows("threads", 300, feed)
	w.pollRows("transactions", 50, feed)
	w.poll(`view.objects("CorrelatorThread").size == 400`, feed)
	w.poll(`view.transaction != null`, func() {
		w.Click("#transactions tbody tr") // rows move below the mouse
		feed()
	})
	w.poll(`view.flame.boxes.length > 20`, func() {
		if w.Eval(`view.objects("CorrelatorTransaction").has(view.transaction)`) != "true" { // it was forgotten
			w.Click("#transactions tbody tr")
		}
		feed()
	})
	w.Eval(`view.begun = [view.statistics.draws, performance.now()]`)
	w.poll(`view.statistics.draws >= view.begun[0] + 3`, feed)
	w.want(`view.statistics.draws - view.begun[0] <= (performance.now() - view.begun[1]) / MIN_PAUSE + 1`, "true")
	w.shoot("many")
	w.want(`[...document.querySelectorAll("tbody")].map(body => body.rows.length)`, "[100,300,50,0,0]")
	w.Do(chromedp.EmulateViewport(390, 1800))
	w.poll(`innerWidth == 390 && view.flame.canvas.clientWidth <= 390`, nil)
	w.want("document.documentElement.scrollWidth", "390")
	w.shoot("phone")
}
