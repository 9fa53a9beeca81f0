// A flame graph: the outermost frames on top.
"use strict";

const FRAME_HEIGHT = 19;
const MAX_BOXES = 10000; // that are drawn: the outermost ones; a screen has no room for more that can be told apart

class Flame {
  constructor(section, describe) {
    this.canvas = section.querySelector("canvas");
    this.tip = section.querySelector(".tip");
    this.back = section.querySelector("button");
    this.detail = section.querySelector("output");
    this.describe = describe; // (time, share of all, wait, more) => text
    this.mark = null;         // more => text: of a differential graph
    this.matches = null;      // name => whether it is searched for; null: nothing is
    this.clear();
    this.canvas.addEventListener("mousemove", event => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", event => {
      const box = this.at(event);
      if (!box) return;
      this.selected = pathOf(box.node);
      this.setZoom(this.selected);
    });
    this.canvas.addEventListener("keydown", event => this.key(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.back.addEventListener("click", () => this.setZoom([]));
  }

  clear() {
    this.root = newNode("");
    this.zoom = [];     // names of the frames from the root to the one that is shown in full
    this.selected = []; // the same for the one that keys have chosen
    this.boxes = [];
    this.tip.hidden = true;
    this.draw();
  }

  setZoom(path) {
    this.zoom = path;
    this.draw();
  }

  // show draws stacks: [{frames, time, wait, more}], innermost frame first. wait is the part of time, if any, that
  // threads waited; more is time of one side of a differential graph, or that of the other with a minus.
  show(stacks) {
    this.root = newNode("");
    for (const {frames, time, wait = 0, more = 0} of stacks) {
      let node = this.root;
      node.time += time;
      node.wait += wait;
      node.more += more;
      for (let i = frames.length - 1; i >= 0; i--) {
        let child = node.children.get(frames[i]);
        if (!child) node.children.set(frames[i], child = newNode(frames[i], node));
        child.time += time;
        child.wait += wait;
        child.more += more;
        node = child;
      }
    }
    this.draw();
  }

  // search marks the frames whose names match, and returns how much time they have together, and how much more.
  search(matches) {
    this.matches = matches;
    this.draw();
    let time = 0, more = 0;
    const rest = matches ? [this.root] : [];
    while (rest.length) {
      const node = rest.pop();
      if (node !== this.root && matches(node.name)) time += node.time, more += node.more;
      else for (const child of node.children.values()) rest.push(child);
    }
    return [time, more];
  }

  // follow returns the node that names lead to, as far as they are still there, and those names.
  follow(names) {
    let node = this.root;
    const path = [];
    for (const name of names) {
      if (!node.children.has(name)) break;
      node = node.children.get(name);
      path.push(name);
    }
    return [node, path];
  }

  draw() {
    const scale = devicePixelRatio || 1, width = this.canvas.parentElement.clientWidth;
    const [node, path] = this.follow(this.zoom);
    this.boxes = [];
    this.back.hidden = !path.length;
    for (let above = node.parent, depth = path.length - 2; depth >= 0; above = above.parent, depth--) {
      this.boxes.unshift({node: above, depth, left: 0, width, above: true}); // what leads to it, in full
    }
    this.place(node, path.length - 1, width);
    const depth = this.boxes.reduce((most, box) => Math.max(most, box.depth + 1), 0);
    this.canvas.width = width * scale;
    this.canvas.height = depth * FRAME_HEIGHT * scale;
    this.canvas.style.width = width + "px";
    this.canvas.style.height = depth * FRAME_HEIGHT + "px";
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px ui-monospace, monospace";
    context.textBaseline = "middle";
    const letter = context.measureText("x").width;
    for (const box of this.boxes) this.drawBox(context, box, letter);
    this.drawSelection(context);
  }

  drawBox(context, box, letter) {
    box.top = box.depth * FRAME_HEIGHT;
    context.globalAlpha = box.above ? 0.55 : 1;
    const plain = this.matches && !this.matches(box.node.name);
    context.fillStyle = plain ? "#b9bec4" : this.matches ? "#c58af9" : this.mark ? differenceColor(box.node.more / box.node.time) : color(box.node.name, box.node.time > 0 && box.node.wait >= box.node.time);
    context.fillRect(box.left, box.top, Math.max(box.width - 1, 0.5), FRAME_HEIGHT - 1);
    context.globalAlpha = 1;
    const letters = Math.floor((box.width - 8) / letter), mark = this.mark ? this.mark(box.node.more) + " " : "";
    const text = letters > mark.length + 8 ? mark + fit(box.node.name, letters - mark.length) : fit(box.node.name, letters);
    if (!text) return;
    context.fillStyle = "#1b1408";
    context.fillText(text, box.left + 4, box.top + FRAME_HEIGHT / 2);
  }

  drawSelection(context) {
    const focused = document.activeElement === this.canvas;
    const [node, path] = this.follow(this.selected);
    const selected = focused && path.length === this.selected.length && this.boxes.find(b => b.node === node);
    this.detail.textContent = selected ? this.text(selected.node) : "";
    if (!selected) return;
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = 2;
    context.strokeRect(selected.left + 1, selected.top + 1, Math.max(selected.width - 3, 1), FRAME_HEIGHT - 3);
  }

  text(node) { return `${node.name}: ${this.describe(node.time, node.time / this.root.time, node.wait, node.more)}`; }

  // place makes the boxes of a node, which has a depth, and of what is in it, level by level.
  place(node, depth, width) {
    let level = [{node, depth, left: 0, width}];
    for (; level.length && this.boxes.length + level.length <= MAX_BOXES; depth++) {
      const next = [];
      for (const box of level) {
        if (box.node !== this.root) this.boxes.push(box);
        let left = box.left;
        for (const child of sorted(box.node)) {
          const share = box.width * child.time / box.node.time;
          if (share >= 0.5) next.push({node: child, depth: depth + 1, left, width: share});
          left += share;
        }
      }
      level = next;
    }
  }

  // key moves among the frames: to callers and callees, and along their order.
  key(event) {
    const [node, path] = this.follow(this.selected);
    const parent = this.follow(path.slice(0, -1))[0];
    const among = sorted(parent), place = among.indexOf(node);
    const to = frame => frame && [...path.slice(0, -1), frame.name];
    const busiest = [...node.children.values()].sort((a, b) => b.time - a.time)[0];
    let next;
    switch (event.key) {
    case "ArrowDown": next = busiest && [...path, busiest.name]; break;
    case "ArrowUp": next = path.slice(0, Math.max(1, path.length - 1)); break;
    case "ArrowLeft": next = to(among[place - 1]); break;
    case "ArrowRight": next = to(among[place + 1]); break;
    case "Enter": case " ": this.zoom = path; break;
    case "Escape":
      if (!this.zoom.length) return; // it is for the page
      // fall through
    case "Backspace": this.zoom = []; break;
    default: return;
    }
    event.preventDefault();
    if (next) this.selected = next;
    const zoom = this.follow(this.zoom)[1];
    if (zoom.some((name, i) => this.selected[i] !== name) && this.selected.length >= zoom.length) {
      this.zoom = this.selected.slice(0, -1); // out of what is shown
    }
    this.draw();
  }

  at(event) {
    const {offsetX: x, offsetY: y} = event;
    return this.boxes.find(b => x >= b.left && x < b.left + b.width && y >= b.top && y < b.top + FRAME_HEIGHT);
  }

  hover(event) {
    const box = this.at(event);
    this.tip.hidden = !box;
    if (!box) return;
    this.tip.textContent = this.text(box.node);
    const {clientWidth: width, clientHeight: height} = document.documentElement;
    const {offsetWidth, offsetHeight} = this.tip;
    this.tip.style.left = Math.max(0, Math.min(event.clientX + 12, width - offsetWidth - 4)) + "px";
    this.tip.style.top = Math.max(0, Math.min(event.clientY + 14, height - offsetHeight - 4)) + "px";
  }
}

function newNode(name, parent) { return {name, parent, time: 0, wait: 0, more: 0, children: new Map()}; }

// pathOf returns the names from the outermost frame to a node.
function pathOf(node) {
  const path = [];
  for (; node.parent; node = node.parent) path.unshift(node.name);
  return path;
}

function sorted(node) {
  return [...node.children.values()].sort((a, b) => a.name < b.name ? -1 : 1);
}

// fit shortens a name to a number of letters: what it is qualified with goes first, but for that in
// parentheses or angle brackets, and before a number ("so.6", "constprop.0"). It looks at each letter
// once: names are any process's choice.
function fit(name, letters) {
  if (letters < 2) return "";
  if (name.length <= letters) return name;
  let start = 0;
  for (let i = 0; i + 1 < name.length && !"(<".includes(name[i]); i++) {
    if (!".:/".includes(name[i]) || ".:/0123456789".includes(name[i + 1])) continue;
    start = i + 1;
    if (name.length - start <= letters) return name.slice(start);
  }
  return name.slice(start, start + letters - 1) + "…";
}

// color gives each name a warm color, always the same; a cool one where threads only waited.
function color(name, waits) {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = hash * 31 + name.charCodeAt(i) | 0;
  return `hsl(${(waits ? 190 : 18) + (hash >>> 8 & 31)} ${72 + (hash & 15)}% ${64 + (hash >>> 4 & 7)}%)`;
}

// differenceColor is red for what one side has more of, from 0 to 1, and blue for less, to -1.
function differenceColor(more) {
  const much = Math.min(Math.abs(more), 1);
  return `hsl(${more > 0 ? 6 : 212} ${Math.round(90 * much ** 0.5)}% ${Math.round(90 - 24 * much)}%)`;
}

// matcher returns what tells names that have the text of an input in them, or match it as a regular expression between
// slashes; null: all do.
function matcher(input) {
  const text = input.value, lower = text.toLowerCase();
  input.setCustomValidity("");
  if (!text) return null;
  if (!/^\/.+\/$/.test(text)) return name => name.toLowerCase().includes(lower);
  try {
    const pattern = new RegExp(text.slice(1, -1), "i");
    return name => pattern.test(name);
  } catch (error) {
    input.setCustomValidity(error.message);
    return null;
  }
}
