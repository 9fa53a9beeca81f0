'use strict'; // a program of known truth for Node.js: see the documentation of package truth

const inspector = require('inspector');
const addon = { exports: {} };
process.dlopen(addon, process.env.LD_PRELOAD); // cpuTime() and spin()

let sink = 0;

// Small functions, which are inlined, alone and in loops.
function rate(x) { return Math.sin(x) * 1.5; }
function price() { for (let i = 0; i < 30000; i++) sink += rate(i); }
function tiny(a, b) { return (a ^ b) + 1; }
function reserve() { let t = 0; for (let i = 0; i < 2000000; i++) t = tiny(t, i); sink += t; }
function hash(n) { let h = 7; for (let i = 0; i < n; i++) h = (h * 31 + i) | 0; return h; }
function hashes() { sink += hash(500000); }
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function recurse() { sink += fib(24); }

// Closures and callbacks: of functions of V8, of arrays, and of this program.
function counter(by) { let n = 0; return function counts(m) { n = (n + by * m) | 0; return n; }; }
function closures() { const c = counter(3); for (let i = 0; i < 150000; i++) sink += c(i); }
const numbers = Array.from({ length: 3000 }, (_, i) => (i * 7919) % 3001);
function compare(a, b) { return a - b; }
function sorting() { for (let i = 0; i < 3; i++) sink += numbers.slice().sort(compare)[7]; }
function twice(x) { return 2 * x; }
function sum(a, b) { return a + b; }
function mapped() { for (let i = 0; i < 40; i++) sink += numbers.map(twice).reduce(sum, 0); }

// Functions of V8 without a callback, and with one.
const text = JSON.stringify({ words: numbers.slice(0, 300).map(String), more: { a: [1.5, 2, null, true] } });
function parses() { for (let i = 0; i < 60; i++) sink += JSON.parse(text).words.length; }
function formats() {
  const o = JSON.parse(text);
  for (let i = 0; i < 150; i++) sink += JSON.stringify(o).length;
}
function upper(found) { return found.toUpperCase(); }
function regex() { for (let i = 0; i < 70; i++) sink += text.replace(/[0-9]+7/g, upper).length; }
function strings() {
  let s = '';
  for (let i = 0; i < 70000; i++) s += String.fromCharCode(97 + i % 26);
  sink += s.indexOf('zb');
}
const map = new Map();
function lookups() { for (let i = 0; i < 30000; i++) { map.set(i % 1000, i); sink += map.get(i % 777); } }

// Objects: constructors, methods, accessors, iterators, exceptions.
class Box {
  constructor(v) { this.v = v; }
  get value() { return this.v + 1; }
  add(n) { this.v = (this.v + n) | 0; return this; }
}
function boxes() { for (let i = 0; i < 200000; i++) sink += new Box(i).add(i).value; }
function* items(n) { for (let i = 0; i < n; i++) yield i; }
function generators() { for (const i of items(60000)) sink += i; }
function fails(i) { if (i % 2) throw new RangeError('no'); return i; }
function tries(i) { try { return fails(i); } catch { return 1; } }
function exceptions() { for (let i = 0; i < 800; i++) sink += tries(i); }
function native() { sink += addon.exports.spin(); }

// Asynchronous functions go on without their callers.
async function step(n) { let h = n; for (let i = 0; i < 1000; i++) h = (h * 33 + i) | 0; return h; }
async function steps() { for (let i = 0; i < 1500; i++) sink += await step(i); }

const phases = {
  price, reserve, hashes, recurse, closures, sorting, mapped, parses, formats, regex, strings, lookups, boxes,
  generators, exceptions, native, steps,
};
const calls = { // by function, those that call it
  '<anonymous>': ['', 'work'], main: ['<anonymous>', ''], work: ['main', ''], rate: ['price'], tiny: ['reserve'],
  hash: ['hashes'], fib: ['fib', 'recurse'], counter: ['closures'], counts: ['closures'], compare: ['sorting'],
  twice: ['mapped'], sum: ['mapped'], upper: ['regex'], Box: ['boxes'], add: ['boxes'], value: ['boxes'],
  'get value': ['boxes'], items: ['generators'], fails: ['tries'], tries: ['exceptions'], step: ['steps'],
  spin: ['native'],
};

const all = { hash: 'hashes', fib: 'recurse', fails: 'exceptions', spin: 'native', step: 'steps' }; // of a phase
const unclear = ['tiny', 'reserve', 'work', 'main', 'profile']; // one instruction in a loop, and what is no work

const took = {};

async function work(ends) {
  for (const name in phases) took[name] = 0;
  while (!ends()) {
    for (const name in phases) {
      const before = addon.exports.cpuTime();
      const going = phases[name]();
      if (going) await going;
      took[name] += addon.exports.cpuTime() - before;
    }
    await new Promise(setImmediate); // a signal is seen
  }
}

// profile returns what V8's own profiler has of this program's functions, by phase: samples with each, samples in
// which it is the innermost, and all. What is compiled while it is on has more positions, so that is another process.
async function profile() {
  const session = new inspector.Session();
  session.connect();
  const post = (method, params) => new Promise((resolve, reject) => session.post(method, params,
    (err, result) => (err ? reject(err) : resolve(result))));
  await post('Profiler.enable');
  await post('Profiler.setSamplingInterval', { interval: 500 });
  await post('Profiler.start');
  const start = Date.now();
  await work(() => Date.now() > start + warming + profiling);
  const { nodes, samples, timeDeltas } = (await post('Profiler.stop')).profile;
  const parents = {}, byId = {}, names = {}, found = {};
  for (const node of nodes) {
    byId[node.id] = node;
    for (const child of node.children || []) parents[child] = node.id;
  }
  for (const node of nodes) {
    names[node.id] = [];
    for (let n = node; n; n = byId[parents[n.id]])
      if (n.callFrame.url.endsWith('truth.js')) names[node.id].push(n.callFrame.functionName);
  }
  let at = 0;
  samples.forEach((id, i) => {
    at += timeDeltas[i];
    const of = names[id].includes('step') ? 'steps' : names[id].find((f) => f in phases);
    if (at < 1000 * warming || !of) return;
    const p = found[of] = found[of] || { all: 0, self: {}, inclusive: {} };
    p.all++;
    p.self[names[id][0]] = (p.self[names[id][0]] || 0) + 1;
    for (const f of new Set(names[id])) p.inclusive[f] = (p.inclusive[f] || 0) + 1;
  });
  return found;
}

const profiling = Number(process.env.PROFILING || 4000), warming = Math.min(profiling, 1500); // milliseconds
const write = (line) => require('fs').writeSync(1, line + '\n');

(async function main() {
  if (process.argv[2] === 'profile') {
    write(JSON.stringify(await profile()));
    return;
  }
  let ended = false;
  process.on('SIGTERM', () => { ended = true; });
  const start = Date.now();
  await work(() => Date.now() > start + warming);
  write('ready');
  await work(() => ended);
  const shares = {}, total = Object.values(took).reduce(sum, 0);
  for (const name in phases) shares[name] = took[name] / total;
  const truth = { file: 'truth.js', inclusive: {}, self: {}, callers: {}, work: 'work', thread: process.pid };
  // V8's profiler has loops of functions that are not optimized as their caller's.
  if (!process.execArgv.includes('--no-opt')) {
    const profiler = [...process.execArgv, __filename, 'profile'];
    const found = JSON.parse(require('child_process').execFileSync(process.execPath, profiler));
    for (const phase in found)
      for (const kind of ['self', 'inclusive'])
        for (const f in found[phase][kind])
          if (!unclear.includes(f))
            truth[kind][f] = (truth[kind][f] || 0) + shares[phase] * found[phase][kind][f] / found[phase].all;
  }
  for (const phase in phases) {
    truth.inclusive[phase] = shares[phase]; // by its own clock
    truth.callers[phase] = phase === 'steps' ? ['work', ''] : ['work'];
    if (!Object.values(calls).some((by) => by.includes(phase))) truth.self[phase] = shares[phase];
  }
  for (const f in all) {
    truth.self[f] = truth.inclusive[f] = shares[all[f]];
    delete truth.self[all[f]];
  }
  for (const f in calls) truth.callers[f] = calls[f];
  write(JSON.stringify(truth));
})();
