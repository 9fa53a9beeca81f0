// The page of a recording: which transaction is drawn, and what is searched for.

(() => {
  const data = JSON.parse(document.querySelector("#data").textContent);
  const one = selector => document.querySelector(selector);
  const select = one("#choice select"), search = document.getElementById("query"), found = one("#found");
  const {waits} = data;
  // Of CPU and waits, those that are shown, in samples: 1 is the time of one, which may be a part of it for waits.
  const shown = id => !waits || one(id).checked;
  const both = (samples, us) => (shown("#cpu") ? samples : 0) + waitOf(us);
  const waitOf = us => waits && shown("#waits") ? us * 1e3 / data.period : 0;

  // cpu returns the CPU time that samples stand for.
  const cpu = count => {
    const ms = count * data.period / 1e6;
    if (ms < 1000) return `${Math.round(ms)} ms`;
    return ms < 60000 ? `${(ms / 1000).toFixed(2)} s` : `${(ms / 60000).toFixed(1)} min`;
  };
  const percent = share => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
  const samples = count => `${count} ${count === 1 ? "sample" : "samples"}`;
  const counted = (count, before) => data.difference ? "" : before + samples(Math.round(count)); // not of means

  // REST stands for the stacks of a transaction that there is no room for in the page: those with fewest samples.
  const REST = "[rest: stacks of few samples]";

  // Of a comparison, the groups are its sides: times of each are divided, and shown with the difference.
  const per = group => data.difference && group >= 0 ? data.difference[group] : 1;
  const finely = count => {
    const ms = count * data.period / 1e6;
    return ms < 10 ? `${ms.toFixed(1)} ms` : cpu(count);
  };
  const signed = more => {
    const text = finely(Math.abs(more));
    return text === "0.0 ms" ? "±0" : (more < 0 ? "−" : "+") + text;
  };
  const sides = (time, more) => `A ${finely((time + more) / 2)}, B ${finely((time - more) / 2)}, difference ${signed(more)}`;

  const flame = new Flame(one("#flame"), (time, share, wait, more) => flame.mark ? sides(time, more) : `${cpu(time)}, ${percent(share)}, ` +
    (wait ? `${cpu(wait)} of it waits` : "") + counted(time - wait, wait ? ", " : ""));

  const timeline = data.timeline && new Timeline(one("#timeline"), cpu, 0.42);
  if (timeline) timeline.load(data);
  one("#zooming").hidden = !timeline;

  for (const note of data.notes || []) one("#notes").append(Object.assign(document.createElement("li"), {textContent: note}));
  if (data.short) {
    one("#notes").append(Object.assign(document.createElement("li"),
      {textContent: `innermost frames of ${percent(data.short / data.all)} of the samples are left out, which few have`}));
  }
  if ([...data.rest, ...waits ? waits.rest : []].some(count => count)) {
    one("#notes").append(Object.assign(document.createElement("li"),
      {textContent: `stacks of few samples are summed up in single transactions as ${REST}`}));
  }
  if (data.others) {
    one("#notes").append(Object.assign(document.createElement("li"),
      {textContent: `${data.others} transactions more are in the whole, and cannot be chosen`}));
  }
  // alone: there is one transaction, and no sample that is in none.
  const count = data.groups.length + data.others;
  const alone = count === 1 && !data.outside && !(waits && waits.outside);
  const transactions = `${count} ${count === 1 ? "transaction" : "transactions"}`;
  const option = (value, text) => select.append(Object.assign(document.createElement("option"), {value, textContent: text}));
  const all = () => both(data.all, waits && waits.all);
  const totals = i => both(data.totals[i], waits && waits.totals[i]) / per(i);
  option("", data.difference ? "difference" : `all: ${cpu(all())}`);
  data.groups.forEach((group, i) => option(String(i), `${group.Name}: ${cpu(totals(i))}`));
  if (waits) {
    one("#states").hidden = false;
    one("#width").textContent = "time";
    for (const id of ["#cpu", "#waits"]) one(id).addEventListener("change", () => show());
  }
  if (data.difference) {
    one("#choice span").textContent = one("#chosen").textContent = "side";
    one("#states label:last-child span").textContent = "waits"; // which are not blue
    one("#notes").append(Object.assign(document.createElement("li"),
      {textContent: "red: more in A, blue: more in B; a frame is as wide as the time of both"}));
  }
  one("#choice").hidden = one("#brackets").hidden = alone || !data.groups.length;

  // frames returns the names of a node's frames, the innermost first.
  const known = new Map();
  const frames = node => {
    if (node < 0) return [];
    let names = known.get(node);
    if (!names) {
      names = [];
      for (let at = node; at >= 0; at = data.nodes[at][0]) names.push(data.names[data.nodes[at][1]]);
      known.set(node, names);
    }
    return names;
  };

  const show = () => {
    const group = select.value === "" ? -1 : Number(select.value);
    const stacks = [];
    // add adds stacks of samples, or of waits in µs. What no stack has is added without one.
    const add = (from, value, isWait, group, sign) => {
      let rest = value(group < 0 ? from.all : from.totals[group]) / per(group);
      const push = (names, time) => stacks.push({frames: names, time, wait: isWait ? time : 0, more: sign * time});
      const put = (names, sum) => {
        const time = value(sum) / per(group);
        if (time) push(names, time);
        rest -= time;
      };
      if (group < 0) {
        from.self.forEach((sum, node) => put(frames(node), sum));
      } else {
        for (const [of, node, sum] of from.samples) if (of === group) put(frames(node - 1), sum);
        put([REST], from.rest[group]);
      }
      if (rest > 1e-6) push([], rest);
    };
    const compares = data.difference && group < 0;
    for (const [of, sign] of compares ? [[0, 1], [1, -1]] : [[group, 0]]) {
      add(data, count => shown("#cpu") ? count : 0, false, of, sign);
      if (waits) add(waits, waitOf, true, of, sign);
    }
    flame.mark = compares ? signed : null;
    const inGroups = both(data.all - data.outside, waits && waits.all - waits.outside);
    const total = group < 0 ? all() : totals(group);
    const wait = waits ? waitOf(group < 0 ? waits.all : waits.totals[group]) / per(group) : 0;
    const sum = cpu(total) + (wait ? `, ${cpu(wait)} of it waits` : "") + counted(total - wait, ", ");
    flame.zoom = [];
    flame.show(stacks);
    one("#flame h2 span").textContent = compares ? sides(flame.root.time, flame.root.more) : group < 0 && !alone
      ? sum + (inGroups ? `, ${inGroups === total ? "all" : cpu(inGroups)} in ${transactions}` : "")
      : `${data.groups[Math.max(group, 0)].Detail}: ${sum}`;
    one("#flame .empty").hidden = total > 0;
    if (timeline) timeline.show(group, shown("#cpu"), !waits || shown("#waits"));
    find();
  };

  // find marks the frames whose names have a text in them, or match a regular expression.
  const find = () => {
    const matches = matcher(search);
    const [hit, more] = flame.search(matches);
    const blocks = timeline ? timeline.search(matches) : "";
    found.textContent = search.validationMessage ||
      (matches ? (hit ? flame.mark ? sides(hit, more) : `${cpu(hit)}, ${percent(hit / flame.root.time)} is in it` : "nothing has such a name") + blocks : "");
  };

  const step = by => {
    if (one("#choice").hidden) return;
    select.selectedIndex = (select.selectedIndex + by + select.options.length) % select.options.length;
    show();
  };
  select.addEventListener("change", show);
  search.addEventListener("input", find);
  one("#tools").addEventListener("submit", event => event.preventDefault());
  addEventListener("keydown", event => {
    const typing = event.target.matches("input, select");
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    switch (event.key) {
    case "/": if (typing) return; search.focus(); search.select(); break;
    case "Escape": search.value = ""; find(); one("#flame canvas").focus(); flame.setZoom([]); break;
    case "[": if (typing) return; step(-1); break;
    case "]": if (typing) return; step(1); break;
    case "Enter": if (event.target !== search) return; one("#flame canvas").focus(); break;
    default: return;
    }
    event.preventDefault();
  });
  new ResizeObserver(() => flame.draw()).observe(one("#flame .scroll"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => flame.draw());
  window.view = {flame, timeline, data}; // for tests
  show();
})();
