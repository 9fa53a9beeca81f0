// A timeline: a lane for each thread, time from left to right. Only what is visible is drawn.

const LANE_HEIGHT = 20, AXIS_HEIGHT = 20, BRACKET_HEIGHT = 15, MAX_BRACKET_ROWS = 6;
const LEAST_TIME = 20; // µs that are shown at least

// What each kind is called, and its color in light and dark.
const KINDS = {
  CPU: ["CPU samples", "#d9661f", "#f59a4a"],
  runnable: ["waiting for a CPU", "#c9a400", "#e3c744"],
  throttled: ["throttled", "#8f5a2b", "#b9814f"],
  lock: ["lock", "#2f6fde", "#6aa2ff"],
  sleep: ["sleep", "#8794a1", "#6d7a87"],
  net: ["network", "#0c8f8f", "#35bdb8"],
  unix: ["Unix socket", "#3d9c6c", "#61c491"],
  pipe: ["pipe", "#6c9a1f", "#9dc94e"],
  poll: ["poll", "#6b8fb3", "#7fa6cc"],
  disk: ["disk", "#8250c4", "#b388f0"],
  fault: ["page fault", "#bf3f8a", "#ec7cbb"],
  gc: ["GC or safepoint", "#c23b3b", "#f07a73"],
  idle: ["idle", "#a9b4bd", "#525f6b"],
  unseen: ["nothing seen", "#cfd5da", "#3a434b"],
};
const OTHER_KIND = ["other", "#6f6a80", "#9b95ad"];

class Timeline {
  // share is how much of the window's height lanes may have.
  constructor(section, period, share) {
    Object.assign(this, {section, period, share, matches: null, shown: {CPU: true, waits: true}});
    const one = selector => section.querySelector(selector);
    this.tip = one(".tip");
    this.back = one("button");
    this.detail = one("output");
    this.scroller = one(".lanes");
    this.canvas = Object.assign(document.createElement("canvas"), {tabIndex: 0});
    this.canvas.setAttribute("role", "application"); // readers of screens leave keys to it
    this.canvas.setAttribute("aria-label", "timeline: arrow keys choose a block, + and - zoom, Enter shows it in full, " +
      "Escape all; a table of the lanes follows");
    this.scroller.firstElementChild.append(this.canvas);
    this.listen();
  }

  // load takes data. If there were some before, they are of the same transactions, and what is shown stays.
  load(data) {
    const {texts, lanes, events, brackets, sums, left, notes, start, end} = data.timeline;
    const passed = 1000 * ((this.start ?? start) - start), {selected} = this;
    Object.assign(this, {data, texts, start, end, left});
    this.lanes = lanes.map(([group, name], i) => ({group, name: texts[name], events: [], sums: [], place: i}));
    for (const [lane, kind, first, last, value, node, cause, endedBy, waker] of events) {
      const event = {lane: this.lanes[lane], kind: texts[kind], first, last, value, node, cause: texts[cause],
        endedBy: texts[endedBy], waker: this.lanes[waker]};
      event.lane.events.push(event);
    }
    for (const [lane, kind, count, sum] of sums) this.lanes[lane].sums.push({kind: texts[kind], count, sum});
    this.brackets = brackets.map(([group, name, first, last]) => ({group, name: texts[name], first, last}));
    const about = [...notes];
    if (left[0]) about.push(`${left[0]} of ${left[0] + events.length} blocks are not drawn: the shortest, and those of threads that are left out`);
    if (left[1]) about.push(`${left[1]} threads more are left out`);
    if (left[2]) about.push(`${left[2]} spans more are left out`);
    this.about = about;
    this.from += passed;
    this.to += passed;
    if (this.drag) this.drag.from += passed;
    this.selected = selected && this.lanes.find(lane => lane.name === selected.lane.name)?.events.find(each =>
      each.kind === selected.kind && Math.abs(each.first - selected.first - passed) < 2) || null;
    this.section.hidden = false;
  }

  // clear forgets the data.
  clear() {
    this.section.hidden = this.back.hidden = this.tip.hidden = true;
    this.start = this.whole = this.group = undefined;
    this.selected = null;
  }

  listen() {
    const {canvas, scroller} = this;
    canvas.addEventListener("mousemove", event => this.hover(event));
    canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("keydown", event => this.key(event));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => this.draw());
    canvas.addEventListener("wheel", event => {
      if (event.offsetX < this.gutter || event.shiftKey || event.deltaY > 0 && this.back.hidden) return; // names scroll
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX / this.plot * (this.to - this.from));
      else this.zoom(Math.exp(event.deltaY / 300), this.timeAt(event.offsetX));
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => {
      if (event.button) return;
      this.drag = {x: event.offsetX, from: this.from, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", event => {
      const {drag} = this;
      if (!drag) return;
      drag.moved ||= Math.abs(event.offsetX - drag.x) > 3;
      const length = this.to - this.from;
      if (drag.moved) this.setView(drag.from - (event.offsetX - drag.x) / this.plot * length, length);
    });
    canvas.addEventListener("pointerup", event => {
      const {drag} = this;
      this.drag = null;
      if (drag && !drag.moved) this.select(this.at(event));
    });
    for (const name of ["pointercancel", "lostpointercapture"]) canvas.addEventListener(name, () => { this.drag = null; });
    canvas.addEventListener("dblclick", event => this.fit(this.at(event)));
    this.back.addEventListener("click", () => this.setView(...this.whole));
    scroller.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(scroller);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // show shows the lanes of a group, all for -1, with or without samples and waits.
  show(group, cpu, waits) {
    const changed = group !== this.group, all = this.back.hidden;
    this.group = group;
    this.shown = {CPU: cpu, waits};
    const of = each => group < 0 || each.group === group;
    this.visible = this.lanes.filter(of).sort((a, b) => a.events.length && b.events.length
      ? a.events[0].first - b.events[0].first : b.events.length - a.events.length);
    this.longest = this.visible.reduce((most, lane) => Math.max(most, lane.name.length), 0);
    this.visible.forEach((lane, i) => { lane.row = i; });
    this.threads = this.visible.filter(lane => lane.events[0]?.kind !== "unseen").length;
    this.rows = [];
    for (const bracket of this.brackets.filter(of).sort((a, b) => a.first - b.first || b.last - a.last)) {
      let row = this.rows.findIndex(r => r.at(-1).last <= bracket.first);
      if (row < 0) row = this.rows.push([]) - 1;
      this.rows[row].push(bracket);
    }
    const hidden = this.rows.splice(MAX_BRACKET_ROWS).flat().length;
    this.section.querySelector(".about").textContent =
      [...this.about, ...hidden ? [`${hidden} spans are not drawn: there is no room for more rows`] : []].join("; ");
    let first = Infinity, last = -Infinity;
    const extend = each => { first = Math.min(first, each.first); last = Math.max(last, each.last); };
    for (const lane of this.visible) lane.events.forEach(extend);
    this.brackets.filter(of).forEach(extend);
    if (group < 0) { first = 0; last = this.end; }
    if (!(first <= last)) { first = 0; last = this.end; }
    const edge = Math.max((last - first) / 50, LEAST_TIME); // so that ticks at the ends are seen
    this.whole = [first - edge, last - first + 2 * edge];
    this.zero = first;
    this.describe(first, last);
    if (changed) {
      this.selected = null;
      this.scroller.scrollTop = 0;
    }
    if (this.matches) this.search(this.matches); // in what was loaded
    if (changed || all) this.setView(...this.whole);
    else this.setView(this.from, this.to - this.from);
  }

  // describe tells in a table and in a legend what the lanes have.
  describe(first, last) {
    const {section} = this, rows = [], sums = new Map();
    for (const lane of this.visible) {
      for (const {kind, count, sum} of lane.sums) {
        const of = sums.get(kind) || {kind, count: 0, sum: 0};
        sums.set(kind, {kind, count: of.count + count, sum: of.sum + sum});
        rows.push([lane.name, nameOf(kind), String(count), this.total(kind, count, sum)]);
      }
    }
    const body = section.querySelector("tbody");
    while (body.children.length > rows.length) body.lastChild.remove();
    while (body.children.length < rows.length) {
      body.append(create("tr", {}, rows[0].map(() => create("td", {}))));
    }
    let row = body.firstChild; // only what has changed is written
    for (const texts of rows) {
      texts.forEach((text, i) => { if (row.children[i].textContent !== text) row.children[i].textContent = text; });
      row = row.nextSibling;
    }
    const threads = this.threads === 1 ? "1 thread" : `${this.threads} threads`;
    const at = new Date(this.start + this.zero / 1000);
    section.querySelector("caption").textContent = `what is drawn of ${threads}`;
    section.querySelector("h2 span").textContent = `${threads}, ${time(last - first)} from ` +
      `${at.toLocaleTimeString([], {hourCycle: "h23"})}.${String(at.getMilliseconds()).padStart(3, "0")}`;
    this.legend = [...sums.values()].map(of => create("li", {}, [
      create("canvas", {width: 10, height: 10}), create("span", {textContent: this.sumOf(of)})]));
    this.legendKinds = [...sums.keys()];
    section.querySelector(".legend").replaceChildren(...this.legend);
  }

  sumOf(of) { return `${nameOf(of.kind)} ${this.total(of.kind, of.count, of.sum)}`; }

  total(kind, count, sum) { return kind === "CPU" ? this.period(count) : time(sum); }

  setView(from, length) {
    length = Math.min(Math.max(length, LEAST_TIME), this.whole[1]);
    this.from = Math.min(Math.max(from, this.whole[0]), this.whole[0] + this.whole[1] - length);
    this.to = this.from + length;
    this.draw();
  }

  zoom(by, around = (this.from + this.to) / 2) {
    const length = Math.min(Math.max((this.to - this.from) * by, LEAST_TIME), this.whole[1]);
    this.setView(around - (around - this.from) * length / (this.to - this.from), length);
  }

  move(by) { this.setView(this.from + by, this.to - this.from); }

  // fit shows an event in full, with as much on both sides.
  fit(event) {
    if (!event) return;
    const length = Math.max(event.last - event.first, 1000);
    this.setView(event.first - length, event.last - event.first + 2 * length);
  }

  timeAt(x) { return this.from + (x - this.gutter) / this.plot * (this.to - this.from); }
  xOf(at) { return this.gutter + (at - this.from) / (this.to - this.from) * this.plot; }

  isShown(event) { return event.kind === "CPU" ? this.shown.CPU : this.shown.waits; }

  // box returns where an event is on the canvas.
  box(event) {
    const left = Math.max(this.xOf(event.first), this.gutter), right = Math.min(this.xOf(event.last), this.gutter + this.plot);
    const top = this.head + event.lane.row * LANE_HEIGHT - this.scroller.scrollTop + 2;
    return {left, top, width: Math.max(right - left, 2), height: LANE_HEIGHT - 4};
  }

  isVisible(event) { return event.last >= this.from && event.first <= this.to; }

  draw() {
    if (!this.whole) return;
    const {canvas, scroller, rows} = this, scale = devicePixelRatio || 1;
    this.back.hidden = this.to - this.from >= this.whole[1] * 0.9999;
    this.head = AXIS_HEIGHT + rows.length * BRACKET_HEIGHT + 3;
    const all = this.head + this.visible.length * LANE_HEIGHT + 2;
    scroller.style.height = Math.min(all, Math.max(innerHeight * this.share, 160)) + "px";
    scroller.firstElementChild.style.height = all + "px";
    const width = scroller.clientWidth, height = scroller.clientHeight;
    this.gutter = Math.round(Math.min(Math.max(80, this.longest * 7.5 + 12), 260, width * 0.34));
    this.plot = Math.max(width - this.gutter, 1);
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    const context = this.context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.textBaseline = "middle";
    context.font = "12px system-ui, sans-serif";
    this.letter = context.measureText("waiting for a network").width / 21;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches, style = getComputedStyle(this.section);
    this.colors = {dark, text: style.color, ground: style.backgroundColor, faint: dark ? "#95a1ab" : "#5c6770",
      line: dark ? "#2c333a" : "#dfe4e8", stripe: dark ? "#1c2024" : "#f4f6f8", focus: getComputedStyle(canvas).color};
    this.legendKinds.forEach((kind, i) => {
      const swatch = this.legend[i].firstElementChild.getContext("2d");
      swatch.fillStyle = this.color(kind);
      swatch.fillRect(0, 0, 10, 10);
    });
    const first = Math.floor(scroller.scrollTop / LANE_HEIGHT);
    const shown = this.visible.slice(first, first + Math.ceil((height - this.head) / LANE_HEIGHT) + 1);
    for (const lane of shown) this.drawLane(lane, width);
    this.drawWakes(shown);
    this.drawSelection(width);
    this.drawHead(width, height);
  }

  color(kind) { return (Object.hasOwn(KINDS, kind) ? KINDS[kind] : OTHER_KIND)[this.colors.dark ? 2 : 1]; }

  drawLane(lane, width) {
    const {context, colors} = this, top = this.head + lane.row * LANE_HEIGHT - this.scroller.scrollTop;
    if (lane.row % 2 === 0) {
      context.fillStyle = colors.stripe;
      context.fillRect(0, top, width, LANE_HEIGHT);
    }
    context.fillStyle = colors.text;
    context.fillText(cutName(lane.name, Math.floor((this.gutter - 10) / this.letter)), 4, top + LANE_HEIGHT / 2);
    if (lane.events.length) { // as long as it was seen
      const from = Math.max(this.xOf(lane.events[0].first), this.gutter);
      const to = Math.min(this.xOf(lane.events.reduce((most, e) => Math.max(most, e.last), 0)), width);
      context.fillStyle = colors.line;
      if (to > from) context.fillRect(from, top + LANE_HEIGHT / 2 - 1, to - from, 2);
    }
    let tick = -1;
    for (const event of lane.events) {
      if (!this.isVisible(event) || !this.isShown(event)) continue;
      const box = this.box(event), found = !this.matches || this.isMatch(event);
      if (event.kind === "CPU") {
        const at = Math.round(box.left);
        if (found && at === tick && event.first === event.last) continue;
        tick = found ? at : -1;
      }
      context.globalAlpha = found ? 1 : 0.18;
      context.fillStyle = this.color(event.kind);
      if (event.kind === "CPU") this.drawSamples(event, box);
      else this.drawWait(event, box);
      context.globalAlpha = 1;
    }
  }

  // drawSamples draws ticks: at the first and the last of several, between which others are, nobody knows where.
  drawSamples(event, box) {
    const {context} = this, last = this.xOf(event.last);
    if (event.value > 2 && last - box.left > 2) {
      const alpha = context.globalAlpha;
      context.globalAlpha = alpha * 0.4;
      context.fillRect(box.left, box.top + 5, Math.min(last, this.gutter + this.plot) - box.left, box.height - 10);
      context.globalAlpha = alpha;
    }
    for (const at of new Set([this.xOf(event.first), last])) {
      if (at >= this.gutter && at <= this.gutter + this.plot) context.fillRect(Math.round(at) - 1, box.top, 2, box.height);
    }
  }

  drawWait(event, {left, top, width, height}) {
    const {context, colors} = this;
    context.fillRect(left, top, Math.max(width - 0.5, 1.5), height);
    if (event.value > event.last - event.first && width > 12) { // it stands for more
      context.fillStyle = colors.ground;
      context.beginPath();
      context.moveTo(left, top);
      context.lineTo(left + 7, top);
      context.lineTo(left, top + 7);
      context.fill();
    }
    const text = cut(event.cause || nameOf(event.kind), Math.floor((width - 14) / this.letter));
    if (!text) return;
    context.fillStyle = textOn(this.color(event.kind));
    context.fillText(text, left + 9, top + height / 2 + 0.5);
  }

  // drawWakes draws from the thread that ended a wait to the one that waited, where the wait is wide enough to be seen.
  drawWakes(shown) {
    const {context, colors} = this;
    if (!this.shown.waits) return;
    context.strokeStyle = context.fillStyle = colors.text;
    for (const lane of shown) {
      for (const event of lane.events) {
        const {waker} = event;
        if (!waker || waker === lane || this.visible[waker.row] !== waker) continue;
        if (event.last < this.from || event.last > this.to) continue;
        const box = this.box(event), x = this.xOf(event.last);
        if (box.width < 4 && event !== this.selected) continue;
        const middle = row => this.head + row * LANE_HEIGHT - this.scroller.scrollTop + LANE_HEIGHT / 2;
        const down = lane.row > waker.row ? -1 : 1, to = middle(lane.row) + down * LANE_HEIGHT * 0.3;
        context.globalAlpha = this.matches && !this.isMatch(event) ? 0.2 : 0.75;
        context.lineWidth = event === this.selected ? 2 : 1;
        context.beginPath();
        context.arc(x, middle(waker.row), 2.5, 0, 7);
        context.fill();
        context.beginPath();
        context.moveTo(x, middle(waker.row));
        context.lineTo(x, to);
        context.stroke();
        context.beginPath();
        context.moveTo(x, to - down * 2);
        context.lineTo(x - 3.5, to + down * 4);
        context.lineTo(x + 3.5, to + down * 4);
        context.fill();
        context.globalAlpha = 1;
      }
    }
  }

  drawSelection(width) {
    const {context, selected} = this, focused = document.activeElement === this.canvas;
    const detail = selected ? this.text(selected) + this.stackOf(selected, 6, " < ") : "";
    if (this.detail.textContent !== detail) this.detail.textContent = detail; // it is spoken
    if (!selected || !this.isVisible(selected)) return;
    const box = this.box(selected);
    context.strokeStyle = focused ? this.colors.focus : this.colors.faint;
    context.lineWidth = 2;
    context.strokeRect(box.left - 2, box.top - 1, Math.min(box.width, width) + 4, box.height + 2);
  }

  // drawHead draws the axis and the spans, over lanes that are scrolled.
  drawHead(width) {
    const {context, colors} = this;
    context.fillStyle = colors.ground;
    context.fillRect(0, 0, width, this.head);
    const per = (this.to - this.from) / this.plot; // µs
    let step = 1;
    for (let i = 0; step / per < 90; i++) step *= [2, 2.5, 2][i % 3];
    for (let at = Math.ceil((this.from - this.zero) / step) * step; at <= this.to - this.zero; at += step) {
      const x = Math.round(this.xOf(at + this.zero)) + 0.5;
      context.fillStyle = colors.line;
      context.fillRect(x, AXIS_HEIGHT - 5, 1, 5);
      context.fillStyle = colors.faint;
      const text = mark(at, step), wide = context.measureText(text).width;
      if (x - wide / 2 > this.gutter && x + wide / 2 < width) context.fillText(text, x - wide / 2, AXIS_HEIGHT / 2 - 1);
    }
    context.fillStyle = colors.line;
    context.fillRect(this.gutter, AXIS_HEIGHT, this.plot, 1);
    if (this.rows.length) {
      context.fillStyle = colors.faint;
      context.fillText("spans", 4, AXIS_HEIGHT + BRACKET_HEIGHT / 2 + 2);
    }
    this.rows.forEach((row, i) => row.forEach(bracket => {
      if (!this.isVisible(bracket)) return;
      const left = Math.max(this.xOf(bracket.first), this.gutter - 4), right = Math.min(this.xOf(bracket.last), width + 4);
      const top = AXIS_HEIGHT + i * BRACKET_HEIGHT + 4.5;
      const found = !this.matches || this.matches(bracket.name);
      context.globalAlpha = found ? 1 : 0.3;
      context.strokeStyle = colors.faint;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(left + 0.5, top + 8);
      context.lineTo(left + 0.5, top + 3);
      context.lineTo(Math.max(right - 0.5, left + 1), top + 3);
      context.lineTo(Math.max(right - 0.5, left + 1), top + 8);
      context.stroke();
      const text = cut(bracket.name, Math.floor((right - left - 26) / this.letter));
      if (text) {
        const wide = context.measureText(text).width;
        context.fillStyle = colors.ground;
        context.fillRect(Math.max(left, this.gutter) + 6, top - 4, wide + 6, 13);
        context.fillStyle = colors.text;
        context.fillText(text, Math.max(left, this.gutter) + 9, top + 3);
      }
      context.globalAlpha = 1;
    }));
  }

  // stackOf returns the innermost frames of an event.
  stackOf(event, most, separator) {
    const {nodes, names} = this.data, frames = [];
    for (let at = event.node; at >= 0 && frames.length <= most; at = nodes[at][0]) frames.push(names[nodes[at][1]]);
    if (frames.length > most) frames[most] = "…";
    return frames.length ? (separator === "\n" ? "\n" : "; ") + frames.join(separator) : "";
  }

  text(event) {
    const {kind, first, last, value, cause, endedBy, lane} = event, at = each => time(each - this.zero);
    if (kind === "CPU") {
      if (value === 1) return `${lane.name}: a sample at ${at(first)}, for ${this.period(1)} of CPU time`;
      return `${lane.name}: ${value} samples from ${at(first)} to ${at(last)}, for ${this.period(value)} of CPU time`;
    }
    return `${lane.name}: ${nameOf(kind)} ${time(last - first)}, from ${at(first)} to ${at(last)}` +
      (value > last - first ? ` (its stack stands for ${time(value)}, with shorter ones before)` : "") +
      (cause ? `, ${cause}` : "") + (endedBy ? `, ended by ${endedBy}` : "");
  }

  // search marks the events with a name in their stack, cause, kind, thread or who ended them that matches, and says
  // how many these are.
  search(matches) {
    this.matches = matches;
    let count = 0, all = 0;
    if (matches) {
      const {nodes, names} = this.data, hit = names.map(name => matches(name));
      this.hits = [];
      nodes.forEach(([above, name], i) => { this.hits[i] = hit[name] || above >= 0 && this.hits[above]; });
      for (const lane of this.visible) {
        lane.found = matches(lane.name);
        for (const event of lane.events) {
          if (!this.isShown(event)) continue;
          all++;
          if (this.isMatch(event)) count++;
        }
      }
    }
    this.draw();
    return matches ? `; ${count} of ${all} blocks` : "";
  }

  isMatch(event) {
    return event.lane.found || this.hits[event.node] || this.matches(nameOf(event.kind)) ||
      this.matches(event.cause) || this.matches(event.endedBy);
  }

  select(event) {
    this.selected = event;
    if (event) {
      const {scroller} = this, top = event.lane.row * LANE_HEIGHT, room = scroller.clientHeight - this.head - LANE_HEIGHT;
      if (top < scroller.scrollTop || top > scroller.scrollTop + room) scroller.scrollTop = top - room / 2;
      const length = this.to - this.from;
      if (!this.isVisible(event)) this.setView((event.first + event.last - length) / 2, length);
    }
    this.draw();
  }

  // key chooses among events, and zooms.
  key(event) {
    const {selected, visible} = this, length = this.to - this.from;
    const of = lane => lane ? lane.events.filter(each => this.isShown(each)) : [];
    const along = by => {
      if (!selected) return this.select(visible.flatMap(of)[0]);
      const events = of(selected.lane);
      this.select(events[Math.min(Math.max(events.indexOf(selected) + by, 0), events.length - 1)]);
    };
    const across = by => {
      if (!selected) return along(0);
      for (let row = selected.lane.row + by; visible[row]; row += by) {
        const away = each => Math.abs(each.first - selected.first);
        const near = of(visible[row]).sort((a, b) => away(a) - away(b))[0];
        if (near) return this.select(near);
      }
    };
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const around = selected && this.isVisible(selected)
      ? (Math.max(selected.first, this.from) + Math.min(selected.last, this.to)) / 2 : undefined;
    switch (event.key) {
    case "+": case "=": this.zoom(0.5, around); break;
    case "-": this.zoom(2, around); break;
    case "ArrowLeft": if (event.shiftKey) this.move(-length / 4); else along(-1); break;
    case "ArrowRight": if (event.shiftKey) this.move(length / 4); else along(1); break;
    case "ArrowUp": across(-1); break;
    case "ArrowDown": across(1); break;
    case "Home": this.setView(this.whole[0], length); break;
    case "End": this.setView(this.whole[0] + this.whole[1], length); break;
    case "Enter": case " ": this.fit(selected); break;
    case "Escape":
      if (this.back.hidden && !selected) return; // it is for the page
      this.selected = null;
      this.setView(...this.whole);
      break;
    default: return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // at returns the event at a place, the shortest of several.
  at({offsetX: x, offsetY: y}) {
    if (x < this.gutter || y < this.head) return null;
    const lane = this.visible[Math.floor((y - this.head + this.scroller.scrollTop) / LANE_HEIGHT)];
    let found = null;
    for (const event of lane ? lane.events : []) {
      if (!this.isVisible(event) || !this.isShown(event)) continue;
      const {left, width} = this.box(event);
      if (x < left - 2 || x > left + width + 2) continue;
      if (!found || event.last - event.first < found.last - found.first) found = event;
    }
    return found;
  }

  hover(mouse) {
    let event = this.at(mouse), text = event && this.text(event) + this.stackOf(event, 14, "\n");
    if (!event && mouse.offsetX >= this.gutter && mouse.offsetY < this.head) {
      const at = this.timeAt(mouse.offsetX), i = Math.floor((mouse.offsetY - AXIS_HEIGHT) / BRACKET_HEIGHT);
      event = (this.rows[i] || []).find(each => each.first <= at && each.last >= at);
      text = event && `${event.name}: ${time(event.last - event.first)}, from ${time(event.first - this.zero)}`;
    }
    if (!event && mouse.offsetX < this.gutter) {
      event = this.visible[Math.floor((mouse.offsetY - this.head + this.scroller.scrollTop) / LANE_HEIGHT)];
      text = event && [event.name, ...event.sums.map(of => this.sumOf(of))].join("\n");
    }
    this.tip.hidden = !event || !!(this.drag && this.drag.moved);
    if (!event) return;
    this.tip.textContent = text;
    const {clientWidth: width, clientHeight: height} = document.documentElement;
    const {offsetWidth, offsetHeight} = this.tip;
    this.tip.style.left = Math.max(0, Math.min(mouse.clientX + 12, width - offsetWidth - 4)) + "px";
    this.tip.style.top = Math.max(0, Math.min(mouse.clientY + 14, height - offsetHeight - 4)) + "px";
  }
}

function cut(text, letters) {
  if (letters < Math.min(4, text.length)) return "";
  return text.length <= letters ? text : text.slice(0, letters - 1) + "…";
}

// cutName cuts the name of a lane, but not the number behind it.
function cutName(name, letters) {
  const [, text, number] = name.match(/^(.*?)( \d+)?$/s);
  return name.length <= letters ? name : cut(text, letters - (number || "").length) + (number || "");
}

// textOn returns the color of text on a color: that of black and white with more contrast.
function textOn(color) {
  const [red, green, blue] = [1, 3, 5].map(at => {
    const part = parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

function nameOf(kind) { return (Object.hasOwn(KINDS, kind) ? KINDS[kind] : OTHER_KIND)[0]; }

function create(name, properties, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// time returns µs for people.
function time(us) {
  if (Math.abs(us) < 1000) return `${Math.round(us)} µs`;
  if (Math.abs(us) < 1e6) return `${(us / 1000).toFixed(1)} ms`;
  return Math.abs(us) < 6e7 ? `${(us / 1e6).toFixed(2)} s` : `${(us / 6e7).toFixed(1)} min`;
}

// mark returns a time of the axis, whose marks are a step apart.
function mark(us, step) {
  if (!Math.round(us)) return "0";
  if (step < 1000) return `${(us / 1000).toFixed(step < 10 ? 3 : step < 100 ? 2 : 1)} ms`;
  if (step < 1e6 && Math.abs(us) < 1e7) return `${Math.round(us / 1000)} ms`;
  return `${(us / 1e6).toFixed(step < 1e6 ? 2 : 0)} s`;
}
