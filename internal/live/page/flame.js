// The flame graph of one transaction: the outermost frames on top.
"use strict";

const FRAME_HEIGHT = 19;

class Flame {
  constructor(section, describe) {
    this.canvas = section.querySelector("canvas");
    this.tip = section.querySelector(".tip");
    this.back = section.querySelector("button");
    this.detail = section.querySelector("output");
    this.describe = describe; // (time, share of all) => text
    this.clear();
    this.canvas.addEventListener("mousemove", event => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", event => {
      const box = this.at(event);
      if (!box) return;
      this.selected = box.path;
      this.setZoom(box.path);
    });
    this.canvas.addEventListener("keydown", event => this.key(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.back.addEventListener("click", () => this.setZoom([]));
  }

  clear() {
    this.root = {name: "", time: 0, children: new Map()};
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

  // show draws stacks: [{frames, time}], innermost frame first.
  show(stacks) {
    this.root = {name: "", time: 0, children: new Map()};
    for (const {frames, time} of stacks) {
      let node = this.root;
      node.time += time;
      for (let i = frames.length - 1; i >= 0; i--) {
        let child = node.children.get(frames[i]);
        if (!child) node.children.set(frames[i], child = {name: frames[i], time: 0, children: new Map()});
        child.time += time;
        node = child;
      }
    }
    this.draw();
  }

  // follow returns the node that names lead to, as far as they are still there, and those names.
  follow(names) {
    let node = this.root, path = [];
    for (const name of names) {
      if (!node.children.has(name)) break;
      node = node.children.get(name);
      path = [...path, name];
    }
    return [node, path];
  }

  draw() {
    const scale = devicePixelRatio || 1, width = this.canvas.parentElement.clientWidth;
    const [node, path] = this.follow(this.zoom);
    this.boxes = [];
    this.back.hidden = !path.length;
    if (path.length) { // the frames that lead to it, in full
      let above = this.root;
      path.slice(0, -1).forEach((name, depth) => {
        above = above.children.get(name);
        this.boxes.push({node: above, path: path.slice(0, depth + 1), depth, left: 0, width, above: true});
      });
    }
    this.place(node, path, Math.max(0, path.length - 1), 0, width);
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
    context.fillStyle = colour(box.node.name);
    context.fillRect(box.left, box.top, Math.max(box.width - 1, 0.5), FRAME_HEIGHT - 1);
    context.globalAlpha = 1;
    const text = fit(box.node.name, Math.floor((box.width - 8) / letter));
    if (!text) return;
    context.fillStyle = "#1b1408";
    context.fillText(text, box.left + 4, box.top + FRAME_HEIGHT / 2);
  }

  drawSelection(context) {
    const focused = document.activeElement === this.canvas;
    const selected = focused && this.boxes.find(b => b.path.join("\n") === this.selected.join("\n"));
    this.detail.textContent = selected ? this.text(selected.node) : "";
    if (!selected) return;
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = 2;
    context.strokeRect(selected.left + 1, selected.top + 1, Math.max(selected.width - 3, 1), FRAME_HEIGHT - 3);
  }

  text(node) { return `${node.name}: ${this.describe(node.time, node.time / this.root.time)}`; }

  place(node, path, depth, left, width) {
    if (node !== this.root) this.boxes.push({node, path, depth: depth++, left, width});
    for (const child of sorted(node)) {
      const share = width * child.time / node.time;
      if (share >= 0.5) this.place(child, [...path, child.name], depth, left, share);
      left += share;
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
    case "Escape": case "Backspace": this.zoom = []; break;
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

function sorted(node) {
  return [...node.children.values()].sort((a, b) => a.name < b.name ? -1 : 1);
}

// fit shortens a name to a number of letters: what it is qualified with goes first.
function fit(name, letters) {
  if (letters < 2) return "";
  let text = name;
  while (text.length > letters) {
    const rest = /^[^.:/(<]*[.:/]+(?=[^.:/])(.+)$/s.exec(text);
    if (!rest) return text.slice(0, letters - 1) + "…";
    text = rest[1];
  }
  return text;
}

// colour gives each name a warm colour, always the same.
function colour(name) {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = hash * 31 + name.charCodeAt(i) | 0;
  return `hsl(${18 + (hash >>> 8 & 31)} ${72 + (hash & 15)}% ${64 + (hash >>> 4 & 7)}%)`;
}
