// Tables of objects, for mouse and keyboard.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const SECONDS = 60; // that a graph shows
const LATE = 3;      // the same between two numbers, at most: timers are late where much is to be done
const GRAPH = {width: 90, height: 20};

// isolate shows texts in a row, none of which can change the order of the others, as Unicode's characters
// for that could.
function isolate(parent, texts) {
  const now = texts.filter(Boolean).map(String), title = now.join(" · ");
  if (parent.title === title && parent.children.length === now.length) return;
  parent.title = title;
  while (parent.children.length > now.length) parent.lastChild.remove();
  while (parent.children.length < now.length) parent.appendChild(document.createElement("bdi"));
  now.forEach((text, i) => {
    const child = parent.children[i];
    if (child.textContent !== text) child.textContent = text;
  });
}

// showIds shows [what it is of, id] pairs as buttons that copy one.
function showIds(parent, ids, tabIndex) {
  while (parent.children.length > ids.length) parent.lastChild.remove();
  while (parent.children.length < ids.length) {
    const button = document.createElement("button");
    Object.assign(button, {className: "id", type: "button", tabIndex});
    button.addEventListener("click", event => {
      event.stopPropagation(); // the row is not chosen
      copy(button.value, button.dataset.what);
    });
    parent.appendChild(button);
  }
  ids.forEach(([what, id], i) => {
    const button = parent.children[i];
    if (button.value === id && button.dataset.what === what) return;
    button.value = id;
    button.dataset.what = what;
    button.textContent = id.slice(0, 8);
    button.title = `${what} ${id}: a click copies it`;
    button.setAttribute("aria-label", `copy ${what} ${id}`);
  });
}

// copy puts a text into the clipboard, and says so. Pages by plain HTTP from elsewhere have no clipboard but for what
// is selected.
async function copy(text, what) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    const focused = document.activeElement, area = document.createElement("textarea");
    area.value = text;
    document.body.appendChild(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    focused?.focus({preventScroll: true});
  }
  const told = document.getElementById("copied");
  told.textContent = done ? `copied: ${what} ${text}` : `not copied: ${what} ${text}`;
  clearTimeout(copy.timer);
  copy.timer = setTimeout(() => { told.textContent = ""; }, 4000);
}

// A History is what some numbers were in each of the last seconds.
class History {
  constructor(numbers) {
    this.values = Array.from({length: numbers}, () => new Float32Array(SECONDS).fill(NaN));
    this.second = 0; // of the last values
  }

  // add says what the numbers are in a second, and were since the last one, if that is not long ago.
  add(second, numbers) {
    const gap = second - this.second;
    numbers.forEach((n, i) => {
      const before = gap <= LATE ? n : NaN;
      for (let ago = 1; ago < Math.min(gap, SECONDS); ago++) this.values[i][(second - ago) % SECONDS] = before;
      this.values[i][second % SECONDS] = n;
    });
    this.second = second;
  }

  most(i) { return this.values[i].reduce((most, n) => n > most ? n : most, 0); }

  // path returns a path in a graph up to a second, closed to fill an area or not.
  path(i, second, most, closed) {
    const {width, height} = GRAPH, parts = [];
    const at = seconds => (width * seconds / SECONDS).toFixed(1);
    let open = false;
    const end = () => {
      if (open && closed) parts.push(`V${height}Z`);
      open = false;
    };
    for (let ago = SECONDS - 1; ago >= 0; ago--) {
      const n = second < ago || second - ago > this.second ? NaN : this.values[i][(second - ago) % SECONDS];
      if (Number.isNaN(n)) {
        end();
        continue;
      }
      const x = at(SECONDS - 1 - ago), y = (height - 1 - (height - 2) * Math.min(1, n / most)).toFixed(1);
      parts.push(open ? `V${y}` : closed ? `M${x} ${height}V${y}` : `M${x} ${y}`, `H${at(SECONDS - ago)}`);
      open = true;
    }
    end();
    return parts.join("");
  }
}

// A Table shows objects as rows, which stay where they are in the document while they do in the order.
class Table {
  // columns are {name, text(object)}, {name, parts(object)}, {name, ids(object)} or {name, graph(key)}; the name is a
  // class. share(object) is 0 to 1, of the bar behind "cpu".
  constructor(section, columns, share, choose) {
    this.section = section;
    this.body = section.querySelector("tbody");
    this.columns = columns;
    this.share = share;
    this.rows = new Map(); // by key
    this.body.addEventListener("click", event => {
      const row = event.target.closest("tr");
      if (row) choose(row.dataset.key);
    });
    this.body.addEventListener("keydown", event => this.key(event, choose));
    // Graphs are drawn where they are in view.
    this.observer = columns.some(c => c.graph) && new IntersectionObserver(changes => {
      for (const {target, isIntersecting} of changes) {
        target.inView = isIntersecting;
        this.drawGraph(target);
      }
    }, {root: section.querySelector(".scroll")});
  }

  key(event, choose) {
    const row = event.target.closest("tr"), stops = [row, ...row.querySelectorAll("button")];
    const to = {
      ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling,
      Home: this.body.firstElementChild, End: this.body.lastElementChild,
    };
    const along = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (along) stops[stops.indexOf(event.target) + along]?.focus();
    else if (event.key === "Enter" || event.key === " ") {
      if (event.target !== row) return; // a button
      choose(row.dataset.key);
    } else if (!(event.key in to)) return;
    else if (to[event.key]) this.focus(to[event.key]);
    event.preventDefault();
  }

  // focus makes a row the one that the Tab key leads to.
  focus(row) {
    this.setEntry(row);
    row.focus();
    row.scrollIntoView({block: "nearest"});
  }

  setEntry(row) {
    if (this.entry) this.entry.tabIndex = -1;
    this.entry = row;
    if (row) row.tabIndex = 0;
  }

  // show shows [key, object] pairs in that order, and marks one.
  show(entries, marked) {
    const focused = this.body.contains(document.activeElement) && document.activeElement;
    const stale = new Set(this.rows.keys());
    let at = this.body.firstElementChild;
    for (const [key, object] of entries) {
      stale.delete(key);
      let row = this.rows.get(key);
      if (!row) this.rows.set(key, row = this.newRow(key));
      this.fill(row, object);
      row.classList.toggle("chosen", key === marked);
      row.setAttribute("aria-selected", key === marked);
      if (row === at) at = at.nextElementSibling;
      else this.body.insertBefore(row, at);
    }
    for (const key of stale) {
      const row = this.rows.get(key);
      if (this.observer) this.observer.unobserve(row);
      row.remove();
      this.rows.delete(key);
    }
    if (!this.entry || !this.entry.isConnected) this.setEntry(this.body.firstElementChild);
    // A row that is moved loses the focus.
    if (focused && document.activeElement !== focused) {
      (focused.isConnected ? focused : this.entry)?.focus({preventScroll: true});
    }
    this.section.classList.toggle("none", !entries.length);
  }

  newRow(key) {
    const row = document.createElement("tr");
    row.dataset.key = key;
    row.setAttribute("role", "row"); // which style.css takes from it
    row.tabIndex = -1;
    for (const {name, text} of this.columns) {
      const cell = row.insertCell();
      cell.setAttribute("role", "cell");
      cell.className = name;
      if (text) cell.appendChild(document.createTextNode(""));
    }
    if (this.observer) this.observer.observe(row);
    return row;
  }

  fill(row, object) {
    this.columns.forEach((column, i) => {
      const cell = row.cells[i];
      if (column.parts) isolate(cell, column.parts(object));
      else if (column.ids) showIds(cell, column.ids(object), -1);
      if (!column.text) return;
      const now = String(column.text(object) ?? "");
      if (cell.firstChild.data === now) return;
      cell.firstChild.data = now;
      cell.title = now;
    });
    this.drawGraph(row);
    const share = Math.round(100 * Math.min(1, this.share(object) || 0));
    if (row.share === share) return;
    row.share = share;
    row.querySelector(".cpu").style.setProperty("--share", share + "%");
  }

  // drawGraph draws the graph of a row: [text, path...] is what there is to see.
  drawGraph(row) {
    if (!row.inView) return;
    this.columns.forEach(({graph}, i) => {
      if (!graph) return;
      const cell = row.cells[i], [text, ...paths] = graph(row.dataset.key);
      if (!cell.firstChild) {
        const picture = cell.appendChild(document.createElementNS(SVG, "svg"));
        picture.setAttribute("viewBox", `0 0 ${GRAPH.width} ${GRAPH.height}`);
        picture.setAttribute("preserveAspectRatio", "none");
        picture.setAttribute("role", "img");
        for (const _ of paths) picture.appendChild(document.createElementNS(SVG, "path"));
      }
      cell.title = text;
      cell.firstChild.setAttribute("aria-label", text);
      paths.forEach((path, j) => cell.firstChild.children[j].setAttribute("d", path));
    });
  }
}
