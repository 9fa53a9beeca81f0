// The page of a recording: which transaction is drawn, and what is searched for.

(() => {
  const data = JSON.parse(document.querySelector("#data").textContent);
  const one = selector => document.querySelector(selector);
  const select = one("#choice select"), search = document.getElementById("query"), found = one("#found");
  const {all, totals} = data;

  // cpu returns the CPU time that samples stand for.
  const cpu = count => {
    const ms = count * data.period / 1e6;
    if (ms < 1000) return `${Math.round(ms)} ms`;
    return ms < 60000 ? `${(ms / 1000).toFixed(2)} s` : `${(ms / 60000).toFixed(1)} min`;
  };
  const percent = share => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
  const samples = count => `${count} ${count === 1 ? "sample" : "samples"}`;

  // REST stands for the stacks of a transaction that there is no room for in the page: those with fewest samples.
  const REST = "[rest: stacks of few samples]";

  const flame = new Flame(one("#flame"), (count, share) => `${cpu(count)}, ${percent(share)}, ${samples(count)}`);

  for (const note of data.notes || []) one("#notes").append(Object.assign(document.createElement("li"), {textContent: note}));
  if (data.short) {
    one("#notes").append(Object.assign(document.createElement("li"),
      {textContent: `innermost frames of ${percent(data.short / all)} of the samples are left out, which few have`}));
  }
  if (data.rest.some(count => count)) {
    one("#notes").append(Object.assign(document.createElement("li"),
      {textContent: `stacks of few samples are summed up in single transactions as ${REST}`}));
  }
  if (data.others) {
    one("#notes").append(Object.assign(document.createElement("li"),
      {textContent: `${data.others} transactions more are in the whole, and cannot be chosen`}));
  }
  // alone: there is one transaction, and no sample that is in none.
  const inGroups = all - data.outside, count = data.groups.length + data.others;
  const alone = count === 1 && !data.outside;
  const transactions = `${count} ${count === 1 ? "transaction" : "transactions"}`;
  const option = (value, text) => select.append(Object.assign(document.createElement("option"), {value, textContent: text}));
  option("", `all: ${cpu(all)}`);
  data.groups.forEach((group, i) => option(String(i), `${group.Name}: ${cpu(totals[i])}`));
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
    let shown = 0;
    const add = (names, count) => { if (count) { stacks.push({frames: names, time: count}); shown += count; } };
    if (group < 0) {
      data.self.forEach((count, node) => add(frames(node), count));
    } else {
      for (const [of, node, count] of data.samples) if (of === group) add(frames(node - 1), count);
      add([REST], data.rest[group]);
    }
    const total = group < 0 ? all : totals[group];
    add([], total - shown); // without a stack
    flame.zoom = [];
    flame.show(stacks);
    one("#flame h2 span").textContent = group < 0 && !alone
      ? `${cpu(total)}, ${samples(total)}` + (inGroups ? `, ${inGroups === all ? "all" : cpu(inGroups)} in ${transactions}` : "")
      : `${data.groups[Math.max(group, 0)].Detail}: ${cpu(total)}, ${samples(total)}`;
    one("#flame .empty").hidden = total > 0;
    find();
  };

  // find marks the frames whose names have a text in them, or match a regular expression.
  const find = () => {
    const text = search.value;
    search.setCustomValidity("");
    let matches = null;
    if (/^\/.+\/$/.test(text)) {
      try {
        const pattern = new RegExp(text.slice(1, -1), "i");
        matches = name => pattern.test(name);
      } catch (error) {
        search.setCustomValidity(error.message);
      }
    } else if (text) {
      const lower = text.toLowerCase();
      matches = name => name.toLowerCase().includes(lower);
    }
    const hit = flame.search(matches);
    found.textContent = search.validationMessage ||
      (matches ? (hit ? `${cpu(hit)}, ${percent(hit / flame.root.time)} is in it` : "nothing has such a name") : "");
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
    case "Escape": search.value = ""; find(); one("canvas").focus(); flame.setZoom([]); break;
    case "[": if (typing) return; step(-1); break;
    case "]": if (typing) return; step(1); break;
    case "Enter": if (event.target !== search) return; one("canvas").focus(); break;
    default: return;
    }
    event.preventDefault();
  });
  new ResizeObserver(() => flame.draw()).observe(one("#flame .scroll"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => flame.draw());
  window.view = {flame, data}; // for tests
  show();
})();
