// The live view: tables of what the agent publishes, and the flame graph of one transaction.
"use strict";

const MAX_ROWS = 300;  // of threads, the busiest; a page of more is no easier to read, and slower
const MIN_PAUSE = 400; // milliseconds between two drawings of what arrives

const element = id => document.getElementById(id);
const percent = share => share === undefined ? "" : (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %";
const cpus = n => n === undefined ? "" : n.toFixed(2);
const short = id => id ? id.slice(0, 8) : "";

function lasted(seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds < 1) return Math.round(1000 * seconds) + " ms";
  if (seconds < 60) return seconds.toFixed(1) + " s";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60 % 60)} min`;
}

// isolate shows texts in a row, none of which can change the order of the others, as Unicode's characters
// for that could.
function isolate(parent, texts) {
  const now = texts.filter(Boolean);
  while (parent.children.length > now.length) parent.lastChild.remove();
  while (parent.children.length < now.length) parent.appendChild(document.createElement("bdi"));
  now.forEach((text, i) => {
    const child = parent.children[i];
    if (child.textContent !== text) child.textContent = text;
  });
  parent.title = now.join(" · ");
}

class View {
  constructor() {
    this.process = null;     // key of the chosen process
    this.transaction = null; // key of the chosen transaction
    this.stacks = new Map(); // of the chosen transaction, by id; they stay when it is no longer told of
    this.drawn = 0;          // when, by performance.now
    this.statistics = {draws: 0, millis: 0};
    const since = time => time === undefined ? "" : lasted(Math.max(0, this.bus.now() - time));
    const ran = time => time === undefined ? "" : this.bus.now() - time < 3 ? "now" : since(time) + " ago";
    this.processes = new Table(element("processes"), [
      {text: o => cpus(o.cpu), numeric: true}, {text: o => cpus(o.tracedCpu), numeric: true}, {text: o => o.service},
      {text: o => o.environment}, {text: o => o.pid, numeric: true}, {text: o => short(o.containerId), code: true},
      {text: o => o.lastError ? `${o.state}: ${o.lastError}` : o.state},
    ], o => o.cpu, key => this.chooseProcess(key));
    this.threads = new Table(element("threads"), [
      {text: o => percent(o.cpu), numeric: true}, {text: o => o.name}, {text: o => o.transactionId, code: true},
      {text: o => short(o.traceId), code: true}, {text: o => since(o.since), numeric: true},
      {text: o => ran(o.lastRun), numeric: true}, {text: o => o.pid, numeric: true}, {text: o => o.tid, numeric: true},
    ], o => o.cpu, key => {
      const o = this.objects("CorrelatorThread").get(key);
      if (o) this.chooseTransaction([o.host, o.traceId, o.transactionId].join("\n"));
    });
    this.transactions = new Table(element("transactions"), [
      {text: o => cpus(o.cpu), numeric: true}, {text: o => lasted(o.cpuTime), numeric: true},
      {text: o => o.transactionId, code: true}, {text: o => short(o.traceId), code: true}, {text: o => o.service},
      {text: o => o.threads, numeric: true}, {text: o => since(o.since), numeric: true},
    ], o => o.cpu, key => this.chooseTransaction(key));
    this.flame = new Flame(element("flame"), (time, share) => `${lasted(time)}, ${percent(share)}`);
    element("all").addEventListener("click", () => this.chooseProcess(null));
    element("filter").addEventListener("input", () => this.draw());
    element("login").addEventListener("submit", event => {
      event.preventDefault();
      this.connect(element("secret").value);
    });
    addEventListener("resize", () => this.flame.draw());
    setInterval(() => this.touch(), 1000);
    this.connect("");
  }

  connect(secret) {
    if (this.next) this.next.close();
    clearTimeout(this.retry);
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
        this.state(reason, true);
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

  state(text, lost) {
    element("state").textContent = text;
    document.body.classList.toggle("lost", text !== "live");
    element("state").classList.toggle("lost", !!lost);
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

  chooseTransaction(key) {
    if (key === this.transaction) return;
    if (this.subscription) this.bus.deselect(this.subscription);
    this.transaction = key;
    this.service = null;
    this.stacks.clear();
    this.flame.clear();
    document.querySelector("main").classList.add("flame");
    this.subscribe();
    this.draw();
  }

  // subscribe has the stacks of the chosen transaction told.
  subscribe() {
    if (!this.bus.ready) return; // connected does
    this.bus.join("CorrelatorStack");
    this.subscription = this.bus.select("CorrelatorTransactionStack", 3, this.transaction.split("\n")[2]);
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
    const services = this.objects("CorrelatorProcess");
    const service = o => services.get([o.host, o.pid].join("\n"))?.service;
    const processes = this.matching("CorrelatorProcess", o => [o.service, o.environment, o.pid, o.containerId, o.state]);
    const threads = this.matching("CorrelatorThread", o => [o.name, o.pid, o.tid, o.transactionId, o.traceId, service(o)])
      .filter(([, o]) => ofProcess(o));
    const transactions = this.matching("CorrelatorTransaction", o => [o.service, o.pid, o.transactionId, o.traceId])
      .filter(([, o]) => ofProcess(o));
    this.show("processes", processes, this.process);
    this.show("threads", threads, null);
    this.show("transactions", transactions, this.transaction);
    const chosen = this.process && services.get(this.process);
    element("all").hidden = !this.process;
    element("all").textContent = `of ${chosen?.service || "process " + this.process?.split("\n")[1]} ✕`;
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
    if (!this.transaction) return;
    const [host, traceId, transactionId] = this.transaction.split("\n");
    const names = this.objects("CorrelatorStack");
    for (const o of this.objects("CorrelatorTransactionStack").values()) {
      if (o.host !== host || o.traceId !== traceId || o.transactionId !== transactionId) continue;
      const frames = names.get([host, o.stackId].join("\n"))?.frames;
      this.stacks.set(o.stackId, {frames: frames || this.stacks.get(o.stackId)?.frames || ["…"], time: o.cpuTime});
    }
    const stacks = [...this.stacks.values()], o = this.objects("CorrelatorTransaction").get(this.transaction);
    element("flame").classList.toggle("none", !stacks.length);
    element("flame").querySelector(".empty").textContent = "no samples with stacks yet";
    this.service = o?.service || this.service;
    isolate(element("flame").querySelector("small"), [
      lasted(stacks.reduce((sum, s) => sum + s.time, 0)) + " of CPU time", o ? "growing" : "no longer among the busiest",
      this.service, `transaction ${transactionId}`, `trace ${traceId}`,
    ]);
    this.flame.show(stacks);
  }
}

const view = new View();
