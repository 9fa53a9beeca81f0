// Tables of objects, for mouse and keyboard.
"use strict";

// A Table shows objects as rows, which stay where they are in the document while they do in the order.
class Table {
  // columns are {text(object), numeric, code}; share(object) is 0 to 1, of the bar in the first column.
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
  }

  key(event, choose) {
    const row = event.target.closest("tr");
    const to = {
      ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling,
      Home: this.body.firstElementChild, End: this.body.lastElementChild,
    };
    if (event.key === "Enter" || event.key === " ") choose(row.dataset.key);
    else if (!(event.key in to)) return;
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
      this.rows.get(key).remove();
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
    for (const {numeric, code} of this.columns) {
      const cell = row.insertCell();
      cell.setAttribute("role", "cell");
      if (numeric) cell.className = "n";
      if (code) cell.className = "code";
      cell.appendChild(document.createTextNode(""));
    }
    return row;
  }

  fill(row, object) {
    this.columns.forEach(({text}, i) => {
      const cell = row.cells[i], now = String(text(object) ?? "");
      if (cell.firstChild.data === now) return;
      cell.firstChild.data = now;
      cell.title = now;
    });
    const share = Math.round(100 * Math.min(1, this.share(object) || 0));
    if (row.share === share) return;
    row.share = share;
    row.cells[0].style.setProperty("--share", share + "%");
  }
}
