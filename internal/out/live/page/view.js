// The live view: tables of what the agent publishes, and the flame graph of one transaction.
"use strict";

const MAX_ROWS = 300;  // of threads, the busiest; a page of more is no easier to read, and slower
const MAX_WORKERS = 3; // of the threads of a transaction, those whose names are shown
const MIN_PAUSE = 400; // milliseconds between two drawings of what arrives
const MAX_IDS = 1000;  // of stacks whose frames are asked for at once: a message that an agent takes, of 64 KiB

// Of the 64 filtered subscriptions that a guest may have, those to frames. Each is for the stacks that
// were new in one second, so what the oldest was for has had its names for long.
const MAX_FRAMES = 16;
const MAX_WAIT = 3000; // milliseconds for which a stack is not shown whose frames have not arrived

const QUIET = 3000;    // milliseconds without an answer after which what is shown is called old
const GIVE_UP = 10000; // the same after which the connection is given up: it can be dead without an end

const element = id => document.getElementById(id);
const percent = share => share === undefined ? "" : (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %";
const cpus = n => n === undefined ? "" : n.toFixed(2);
const short = id => id ? id.slice(0, 8) : "";
const serviceOf = process => process?.service || process?.command; // a process without a service has a program
const isKnown = id => !/^0*$/.test(id ?? ""); // one of zeros is none
const idsOf = o => [["transaction", o.transactionId], ["trace", o.traceId]].filter(([, id]) => isKnown(id));

function lasted(seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds < 1) return Math.round(1000 * seconds) + " ms";
  if (seconds < 60) return seconds.toFixed(1) + " s";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60 % 60)} min`;
}

// roughly is a time in few letters.
function roughly(seconds) {
  if (seconds < 60) return lasted(seconds);
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

// exactly is a time that was measured.
const exactly = seconds => seconds < 0.001 ? Math.round(1e6 * seconds) + " µs" : lasted(seconds);

// busiestOf returns the function that most of the CPU time of stacks is in.
function busiestOf(stacks) {
  const sums = new Map();
  let all = 0, most = "";
  for (const {frames, time} of stacks) {
    all += time;
    sums.set(frames[0], (sums.get(frames[0]) || 0) + time);
    if (sums.get(frames[0]) > (sums.get(most) || 0)) most = frames[0];
  }
  return most && `most in ${most} (${percent(sums.get(most) / all)})`;
}

// clock is the time of day of a time, as this browser shows it, with seconds.
const clock = time => new Date(1000 * time).toLocaleTimeString([], {hourCycle: "h23"});

class View {
  constructor() {
    this.process = null;     // key of the chosen process
    this.transaction = null; // key of the chosen transaction, or of the process whose stacks are shown
    this.stacks = new Map(); // of what is chosen, by id; they stay when it is no longer told of
    this.asked = new Map();  // by id of a stack whose frames were asked for: when, by performance.now
    this.frames = [];        // the subscriptions to these
    this.invitation = element("flame").querySelector(".empty").textContent;
    this.drawn = 0;          // when, by performance.now
    this.statistics = {draws: 0, millis: 0};
    const since = time => time === undefined ? "" : roughly(Math.max(0, this.bus.now() - time));
    const ran = time => time === undefined ? "" : this.bus.now() - time < 3 ? "now" : since(time);
    this.histories = new Map(); // by key of a process: its CPUs, and its threads that wait
    this.most = [1, 1];         // of these, what the full height of graphs is
    this.workers = new Map();   // by key of a transaction: names of threads that work on it
    this.processes = new Table(element("processes"), [
      {name: "name", text: serviceOf}, {name: "graph", graph: key => this.graphOf(key)},
      {name: "cpu n", text: o => cpus(o.cpu)},
      {name: "about", parts: o => [o.environment, `pid ${o.pid}`, short(o.containerId),
        o.lastError ? `${o.state}: ${o.lastError}` : o.state]},
      {name: "traced n", text: o => cpus(o.tracedCpu)},
    ], o => o.cpu, key => {
      this.chooseProcess(key);
      if (this.allProcesses(key)) this.chooseTransaction(this.process);
    });
    this.threads = new Table(element("threads"), [
      {name: "name", parts: o => [o.name, this.serviceOfPid(o)]},
      {name: "cpu n", text: o => percent(o.cpu)}, {name: "ids", ids: o => idsOf(o).slice(0, 1)},
      {name: "for n", text: o => since(o.since)}, {name: "ran n", text: o => ran(o.lastRun)},
      {name: "tid n", text: o => o.tid},
    ], o => o.cpu, key => {
      const o = this.objects("CorrelatorThread").get(key);
      if (o) this.chooseTransaction((o.traceId ? [o.host, o.traceId, o.transactionId] : [o.host, o.pid]).join("\n"));
    });
    this.transactions = new Table(element("transactions"), [
      {name: "name", parts: o => [this.serviceOfPid(o), this.nameOf(o)]}, {name: "cpu n", text: o => cpus(o.cpu)},
      {name: "time n", text: o => lasted(o.cpuTime)}, {name: "for n", text: o => since(o.since)},
      {name: "ids", ids: idsOf}, {name: "threads n", text: o => o.threads},
    ], o => o.cpu, key => this.chooseTransaction(key));
    this.waits = new Table(element("waits"), [
      {name: "name", text: o => (o.place && "\u00a0\u00a0\u00a0") + o.text},
      {name: "cpu n", text: o => exactly(o.time)},
      {name: "times n", text: o => o.times}, {name: "longest n", text: o => exactly(o.longest)},
      {name: "by", text: o => o.endedBy},
    ], o => o.time / this.accounted, () => {});
    this.flame = new Flame(element("flame"), (time, share) => `${lasted(time)}, ${percent(share)}`);
    this.timeline = new Timeline(element("timeline"), count => lasted(count * this.perSample), 0.25);
    element("query").addEventListener("input", () => this.find());
    element("all").addEventListener("click", () => this.chooseProcess(null));
    element("filter").addEventListener("input", () => this.draw());
    element("login").addEventListener("submit", event => {
      event.preventDefault();
      this.connect(element("secret").value);
    });
    addEventListener("resize", () => this.flame.draw());
    element("close").addEventListener("click", () => this.chooseTransaction(null));
    addEventListener("keydown", event => {
      const elsewhere = event.defaultPrevented || event.target instanceof HTMLInputElement;
      if (event.key === "Escape" && !elsewhere) this.chooseTransaction(null);
      if (event.key !== "/" || elsewhere || !this.transaction || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      element("query").focus();
    });
    setInterval(() => {
      this.listen();
      this.remember();
      this.touch();
    }, 1000);
    this.connect("");
  }

  connect(secret) {
    if (this.next) this.next.close();
    clearTimeout(this.retry);
    this.secret = secret;
    element("login").hidden = true;
    this.state("connecting");
    const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/`;
    const bus = this.next = new Bus(url, secret, {
      connected: () => {
        this.bus = bus; // until now, what the last one has told is shown
        this.state("live");
        if (this.transaction) this.subscribe();
        this.touch();
      },
      closed: reason => {
        this.state(bus.asked ? reason : reason + "; connecting again", true);
        element("login").hidden = !bus.asked;
        if (bus.asked) element("secret").focus();
        else this.retry = setTimeout(() => this.connect(secret), 2000);
      },
      changed: () => this.touch(),
      removed: () => this.touch(),
    });
    this.bus ||= bus;
    for (const type of ["CorrelatorHost", "CorrelatorProcess", "CorrelatorThread", "CorrelatorTransaction"]) {
      bus.join(type);
    }
  }

  // listen says when nothing more is heard, and connects again after a while.
  listen() {
    const bus = this.next, silence = bus.silence();
    if (silence > GIVE_UP) this.connect(this.secret);
    else if (bus.ready && !bus.ended) {
      const quiet = silence > QUIET;
      this.state(quiet ? `no news for ${Math.round((performance.now() - bus.heard) / 1000)} s` : "live", quiet);
    }
  }

  state(text, lost) {
    element("state").textContent = text;
    document.body.classList.toggle("lost", text !== "live");
    element("state").classList.toggle("lost", !!lost);
  }

  // remember keeps what is told of processes now, for their graphs.
  remember() {
    const processes = this.objects("CorrelatorProcess"), live = !document.body.classList.contains("lost");
    for (const key of this.histories.keys()) if (!processes.has(key)) this.histories.delete(key);
    this.second = Math.floor(performance.now() / 1000);
    this.most = [0.01, 1];
    for (const [key, o] of processes) {
      let history = this.histories.get(key);
      if (!history) this.histories.set(key, history = new History(2));
      if (live) history.add(this.second, [o.cpu ?? NaN, o.waiting ?? NaN]);
      this.most = this.most.map((most, i) => Math.max(most, history.most(i)));
    }
  }

  graphOf(key) {
    const history = this.histories.get(key);
    if (!history) return ["", "", ""];
    const text = (i, digits) => {
      const now = history.values[i][history.second % SECONDS];
      return `${now >= 0 ? now.toFixed(digits) : "not known"}, at most ${history.most(i).toFixed(digits)}`;
    };
    return [`the last minute: CPUs ${text(0, 2)}; threads that wait in transactions ${text(1, 1)}`,
      history.path(0, this.second, this.most[0], true), history.path(1, this.second, this.most[1], false)];
  }

  serviceOfPid(o) { return o.service || serviceOf(this.objects("CorrelatorProcess").get([o.host, o.pid].join("\n"))); }

  // nameOf returns what a transaction is of: what it calls that, or else its threads, as far as they were seen in it.
  nameOf(o) {
    return o.name || [...this.workers.get([o.host, o.traceId, o.transactionId].join("\n")) || []].join(", ");
  }

  // meetWorkers remembers which threads work on transactions, while these are told of.
  meetWorkers() {
    const transactions = this.objects("CorrelatorTransaction");
    for (const key of this.workers.keys()) if (!transactions.has(key)) this.workers.delete(key);
    for (const o of this.objects("CorrelatorThread").values()) {
      const key = [o.host, o.traceId, o.transactionId].join("\n");
      if (!o.name || !transactions.has(key)) continue;
      const names = this.workers.get(key) || new Set();
      this.workers.set(key, names);
      if (names.size < MAX_WORKERS) names.add(o.name);
    }
  }

  objects(type) { return this.bus.containers.get(type) || new Map(); }

  // touch has what changed drawn, once, a moment after the last time.
  touch() {
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    }), Math.max(0, this.drawn + MIN_PAUSE - performance.now()));
  }

  chooseProcess(key) {
    this.process = key === this.process ? null : key;
    this.draw();
  }

  // allProcesses reports whether stacks of processes can be shown on the host of an object.
  allProcesses(key) { return !!this.objects("CorrelatorHost").get(key.split("\n")[0])?.allProcesses; }

  // chooseTransaction shows the flame graph of a transaction or process, or of none: then nobody wants its stacks.
  chooseTransaction(key) {
    if (key === this.transaction) return;
    for (const subscription of [this.subscription, this.waitsOf, this.timesOf, ...this.frames]) if (subscription) this.bus.deselect(subscription);
    this.transaction = key;
    this.service = this.name = null;
    this.since = this.lost = 0;
    this.seen = false; // among the busiest transactions
    this.waits.show([], null);
    this.stacks.clear();
    const focused = element("flame").contains(document.activeElement);
    this.flame.clear();
    this.timeline.clear();
    this.untimed = ""; // why it has no timeline
    element("query").value = "";
    this.find();
    document.querySelector("main").classList.toggle("flame", !!key);
    element("close").hidden = !key;
    if (key) element("flame").scrollIntoView({block: "nearest"}); // where it is below the tables
    this.subscribe();
    this.draw();
    if (!key && focused) this.transactions.entry?.focus();
  }

  // subscribe has the stacks of the chosen transaction told.
  subscribe() {
    this.frames = [];
    this.asked.clear();
    for (const type of ["TransactionStack", "ProcessStack", "Stack", "TransactionWait", "TransactionTimeline"]) {
      this.bus.forget("Correlator" + type);
    }
    this.subscription = this.waitsOf = this.timesOf = this.version = null;
    if (!this.transaction || !this.bus.ready) return; // connected does
    const [host, traceId, transactionId] = this.transaction.split("\n");
    if (transactionId === undefined) {
      this.subscription = this.bus.select("CorrelatorProcessStack", {1: [host], 2: [Number(traceId)]});
      return;
    }
    const only = {1: [host], 2: [traceId], 3: [transactionId]};
    this.subscription = this.bus.select("CorrelatorTransactionStack", only);
    this.waitsOf = this.bus.select("CorrelatorTransactionWait", only);
    this.timesOf = this.bus.select("CorrelatorTransactionTimeline", only);
  }

  // askFrames has the frames of stacks told, which were not asked for before.
  askFrames(ids) {
    for (const id of ids) this.asked.set(id, performance.now());
    for (; ids.length; ids = ids.slice(MAX_IDS)) {
      this.frames.push(this.bus.select("CorrelatorStack", {2: ids.slice(0, MAX_IDS)}));
    }
    while (this.frames.length > MAX_FRAMES) this.bus.deselect(this.frames.shift());
  }

  // matching returns the objects of a type that the filter lets through, the busiest first.
  matching(type, texts) {
    const wanted = element("filter").value.trim().toLowerCase();
    let entries = [...this.objects(type)];
    if (wanted) {
      entries = entries.filter(([, o]) => texts(o).some(text => String(text ?? "").toLowerCase().includes(wanted)));
    }
    return entries.sort((a, b) => (b[1].cpu || 0) - (a[1].cpu || 0) ||
      (b[1].tracedCpu || 0) - (a[1].tracedCpu || 0) || (a[0] < b[0] ? -1 : 1));
  }

  draw() {
    const begun = this.drawn = performance.now();
    this.drawHost();
    const ofProcess = o => !this.process || [o.host, o.pid].join("\n") === this.process;
    this.meetWorkers();
    const processes = this.matching("CorrelatorProcess",
      o => [serviceOf(o), o.environment, o.pid, o.containerId, o.state]);
    const threads = this.matching("CorrelatorThread",
      o => [o.name, o.pid, o.tid, o.transactionId, o.traceId, this.serviceOfPid(o)])
      .filter(([, o]) => ofProcess(o));
    const transactions = this.matching("CorrelatorTransaction",
      o => [this.serviceOfPid(o), this.nameOf(o), o.pid, o.transactionId, o.traceId])
      .filter(([, o]) => ofProcess(o));
    this.show("processes", processes, this.process);
    this.show("threads", threads, null);
    this.show("transactions", transactions, this.transaction);
    const chosen = this.process && this.objects("CorrelatorProcess").get(this.process);
    element("all").hidden = !this.process;
    element("all").textContent = `of ${serviceOf(chosen) || "process " + this.process?.split("\n")[1]} ✕`;
    this.drawFlame();
    this.statistics.draws++;
    this.statistics.millis += performance.now() - begun;
  }

  show(section, entries, marked) {
    const shown = section === "threads" ? entries.slice(0, MAX_ROWS) : entries;
    this[section].show(shown, marked);
    element(section).querySelector("small").textContent =
      shown.length < entries.length ? `${shown.length} of ${entries.length}` : entries.length;
  }

  drawHost() {
    const hosts = [...this.objects("CorrelatorHost").values()];
    element("host").textContent = hosts.map(h => h.name || h.host).join(", ");
    element("facts").textContent = hosts.map(h => [
      `${cpus(h.cpu) || "–"} of ${h.cpus} CPUs in ${h.processes} ${h.processes === 1 ? "process" : "processes"}`, `agent ${percent(h.agentCpu) || "–"} of a CPU`,
      h.samplesPerSecond ? `${h.samplesPerSecond} samples/s` : "takes no samples: only processes are known",
    ].join(" · ")).join("; ");
  }

  drawFlame() {
    const facts = element("flame").querySelector("small");
    if (!this.transaction) {
      element("flame").classList.add("none");
      element("flame").querySelector(".empty").textContent = this.invitation;
      for (const shown of [element("chosen"), facts]) isolate(shown, []);
      return showIds(element("ids"), []);
    }
    const [host, traceId, transactionId] = this.transaction.split("\n");
    const ofProcess = transactionId === undefined; // then traceId is its pid
    const names = this.objects("CorrelatorStack"), unknown = [];
    const o = this.objects(ofProcess ? "CorrelatorProcess" : "CorrelatorTransaction").get(this.transaction);
    this.service = (ofProcess ? serviceOf(o) : o?.service) || this.service;
    if (o?.stacksSince && o.stacksSince !== this.since) this.stacks.clear(); // they are begun anew
    this.since = o?.stacksSince || this.since;
    if (o) this.lost = o.stacksLost || 0;
    const chosen = ofProcess ? o => o.host === host && o.pid === Number(traceId)
      : o => o.host === host && o.traceId === traceId && o.transactionId === transactionId;
    for (const o of this.objects(ofProcess ? "CorrelatorProcessStack" : "CorrelatorTransactionStack").values()) {
      if (!chosen(o)) continue;
      if (!this.asked.has(o.stackId)) unknown.push(o.stackId);
      const frames = names.get([host, o.stackId].join("\n"))?.frames;
      const known = frames || this.stacks.get(o.stackId)?.frames;
      if (!known && !(performance.now() - this.asked.get(o.stackId) > MAX_WAIT)) continue;
      this.stacks.set(o.stackId, {frames: known || ["…"], time: o.cpuTime});
    }
    if (this.bus.ready) this.askFrames(unknown);
    const stacks = [...this.stacks.values()];
    element("flame").classList.toggle("none", !stacks.length);
    element("flame").querySelector(".empty").textContent = o ? "No samples with stacks yet."
      : ofProcess ? "It has ended." : "It is not among the busiest transactions: it has no stacks.";
    this.name = (o && !ofProcess && this.nameOf(o)) || this.name;
    isolate(element("chosen"), [this.service || (ofProcess ? "process" : "transaction"), this.name]);
    showIds(element("ids"), idsOf(ofProcess ? {} : {traceId, transactionId}), 0);
    isolate(facts, [
      lasted(stacks.reduce((sum, s) => sum + s.time, 0)) + " of CPU time", busiestOf(stacks),
      this.lost > 0 && lasted(this.lost) + " more without stacks",
      this.since && "samples since " + clock(this.since),
      o ? "growing" : ofProcess ? "it has ended" : "no longer among the busiest", ofProcess && `process ${traceId}`,
    ]);
    this.flame.show(stacks);
    this.drawWaits(!!o);
    this.drawTimeline(host, !ofProcess);
    if (element("query").value) this.find();
  }

  // find marks what is searched for.
  find() {
    const matches = matcher(element("query"));
    const [hit] = this.flame.search(matches), blocks = this.timeline.whole ? this.timeline.search(matches) : "";
    element("found").textContent = element("query").validationMessage || (matches
      ? (hit ? `${lasted(hit)}, ${percent(hit / this.flame.root.time)} is in it` : "nothing has such a name") + blocks : "");
  }

  // drawTimeline shows the newest timeline of which all parts are there. It stays when it is no longer told.
  drawTimeline(host, wanted) {
    const parts = [...this.objects("CorrelatorTransactionTimeline").values()].sort((a, b) => a.part - b.part);
    const version = Math.max(...parts.map(o => o.version)), newest = parts.filter(o => o.version === version);
    if (version !== this.version && newest.length && newest.length === newest[0].parts) {
      this.version = version;
      try {
        const data = JSON.parse(newest.map(o => o.text).join(""));
        this.untimed = data.none || "";
        this.perSample = data.period / 1e9;
        if (!data.none) {
          this.timeline.load(data);
          this.timeline.show(-1, true, true);
        }
      } catch { // of an agent that was upgraded meanwhile
        this.timeline.clear();
        this.untimed = "it is of another version (load the page again)";
      }
    }
    const why = this.objects("CorrelatorHost").get(host)?.noTimelines || this.untimed;
    element("untimed").textContent = !wanted || this.timeline.whole ? "" : why ? `No timeline: ${why}.` : "No timeline yet.";
  }

  // drawWaits shows what the threads of the chosen transaction did: the longest state first, with its places.
  drawWaits(published) {
    const sums = new Map(), all = this.objects("CorrelatorTransactionWait");
    const rows = [...all].filter(([key]) => key.startsWith(this.transaction + "\n"));
    if (!rows.length || !published && this.seen) return; // they go with the transaction, and stay here
    this.seen = published;
    for (const [, o] of rows) if (!o.place) sums.set(o.state, o.time);
    this.accounted = [...sums.values()].reduce((sum, time) => sum + time, 0);
    rows.sort(([a, x], [b, y]) => sums.get(y.state) - sums.get(x.state) || x.state.localeCompare(y.state) ||
      !y.place - !x.place || y.time - x.time || (a < b ? -1 : 1));
    this.waits.show(rows, null);
  }
}

const view = new View();
