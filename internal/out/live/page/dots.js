// A guest of a DOTS broker by WebSocket (dots-json): every message is an array of a header and an
// instance, with the names of properties.
"use strict";

const JOIN = 1, LEAVE = 2;
const LEAF = 1, AND = 2, IS_IN = 7; // DotsPredicateKind, DotsCompareOp
const PING_AFTER = 1500; // milliseconds without a message after which the broker is asked whether it is there

class Bus {
  // on: {connected(), closed(reason), changed(type, key, object), removed(type, key, object)}.
  // secret is what the broker may ask for.
  constructor(url, secret, on) {
    this.on = on;
    this.secret = secret;
    this.types = new Map();      // by name: the descriptor, with tags of properties by name
    this.containers = new Map(); // by type: a Map of objects by key
    this.groups = [];
    this.subscriptions = new Map(); // filtered, by id: the type
    this.lastSubscription = 0;
    this.asked = false;          // for the secret, which is missing or wrong
    this.challenged = false;     // the broker asked for it, and was answered
    this.ahead = 0;              // seconds that the broker's clock is ahead
    this.heard = performance.now(); // when the last message came
    this.asks = this.heard;      // when what is not answered yet was asked; null: nothing is
    this.ended = false;
    this.socket = new WebSocket(url, "dots-json");
    this.socket.onmessage = event => {
      this.heard = performance.now();
      this.asks = null;
      const [header, instance] = JSON.parse(event.data);
      // A number of 64 bits, which JSON.parse rounds.
      if (header.typeName === "DotsMsgHello") {
        this.challenge = BigInt(/"authChallenge"\s*:\s*(\d+)/.exec(event.data)[1]);
      }
      this.receive(header, instance);
    };
    this.socket.onclose = () => {
      this.ended = true;
      on.closed(this.refusal || "the connection has ended");
    };
  }

  // silence returns for how many milliseconds the broker has not answered. It is called every second, and
  // asks the broker after a pause in what that tells, which may have nothing new.
  silence() {
    const now = performance.now();
    if (this.ended) return 0;
    if (this.asks !== null) return now - this.asks;
    if (this.ready && now - this.heard > PING_AFTER) {
      this.asks = now;
      this.send("DotsEcho", {request: true}, 0b10);
    }
    return 0;
  }

  close() {
    this.ended = true;
    this.socket.onclose = null;
    this.socket.close();
  }

  send(typeName, instance, attributes) {
    this.socket.send(JSON.stringify([{typeName, attributes, removeObj: false, sentTime: Date.now() / 1000}, instance]));
  }

  // join has the objects of a type told, at once and when they change.
  join(type) {
    if (this.groups.includes(type)) return;
    this.groups.push(type);
    if (this.ready) this.send("DotsMember", {groupName: type, event: JOIN}, 0b110);
  }

  // select joins those objects of a type whose string properties each are one of some values, by their
  // tags, and returns what deselect is to be given.
  select(type, values) {
    const subscriptionId = ++this.lastSubscription;
    const leaves = Object.entries(values).map(([tag, all]) => {
      const value = typeof all[0] === "number" ? {uintValues: all} : {stringValues: all};
      return {kind: LEAF, leaf: {propertyTag: Number(tag), op: IS_IN, value}};
    });
    const filter = {predicate: {nodes: [{kind: AND, arity: leaves.length}, ...leaves]}};
    this.subscriptions.set(subscriptionId, type);
    this.send("DotsMember", {groupName: type, event: JOIN, subscriptionId, filter}, 0b110110);
    return subscriptionId;
  }

  deselect(subscriptionId) {
    const type = this.subscriptions.get(subscriptionId);
    this.subscriptions.delete(subscriptionId);
    if (this.ready) this.send("DotsMember", {groupName: type, event: LEAVE, subscriptionId}, 0b10110);
  }

  // forget forgets the objects of a type.
  forget(type) { this.containers.delete(type); }

  // now returns the broker's time, in seconds.
  now() { return Date.now() / 1000 + this.ahead; }

  receive(header, instance) {
    if (header.serverSentTime && !header.fromCache) this.ahead = header.serverSentTime - Date.now() / 1000;
    switch (header.typeName) {
    case "DotsMsgHello":
      return this.connect(instance);
    case "DotsMsgConnectResponse":
      if (instance.accepted === false) this.refuse();
      if (instance.accepted) this.connected();
      return;
    case "DotsMsgError":
      if (instance.errorCode) this.refusal = instance.errorText;
      return;
    case "StructDescriptorData":
      return this.learn(instance);
    case "EnumDescriptorData": case "DotsCacheInfo":
      return;
    }
    this.apply(header, instance);
  }

  connect(hello) {
    const clientName = "live view";
    const instance = {clientName, preloadCache: true};
    let attributes = 0b110;
    if (hello.authenticationRequired) {
      if (!this.secret) {
        this.ask("the broker asks for a secret");
        return this.socket.close();
      }
      instance.cnonce = crypto.getRandomValues(new Uint32Array(2)).reduce(
        (text, n) => text + n.toString(16).padStart(8, "0"), "");
      instance.authChallengeResponse = response(clientName, this.secret, this.challenge, instance.cnonce);
      attributes |= 0b110000;
      this.challenged = true;
    }
    this.asks = performance.now();
    this.send("DotsMsgConnect", instance, attributes);
  }

  // refuse takes account of a broker that has seen who we are, and the secret if it asked for that.
  refuse() {
    if (this.challenged) this.ask("the secret is wrong");
    else this.refusal ||= "the broker refuses this page";
  }

  ask(why) {
    this.asked = true;
    this.refusal = why;
  }

  connected() {
    this.ready = true;
    for (const type of this.groups) this.send("DotsMember", {groupName: type, event: JOIN}, 0b110);
    this.send("DotsMsgConnect", {preloadClientFinished: true}, 0b1000);
    this.on.connected();
  }

  learn(descriptor) {
    if (this.types.has(descriptor.name)) return;
    const type = {keys: [], others: []};
    for (const p of descriptor.properties) (p.isKey ? type.keys : type.others).push(p);
    this.types.set(descriptor.name, type);
  }

  // apply does to a container what a message says: properties that it speaks about replace what was,
  // those that have no value are unset.
  apply(header, instance) {
    const type = this.types.get(header.typeName);
    if (!type) return;
    const container = this.containers.get(header.typeName) || new Map();
    this.containers.set(header.typeName, container);
    const key = type.keys.map(p => instance[p.name]).join("\n");
    let object = container.get(key);
    if (header.removeObj) {
      if (object && container.delete(key)) this.on.removed(header.typeName, key, object);
      return;
    }
    if (!object) {
      object = {};
      for (const p of type.keys) object[p.name] = instance[p.name];
      container.set(key, object);
    }
    for (const p of type.others) {
      if (!(header.attributes >>> p.tag & 1)) continue;
      if (instance[p.name] === undefined || instance[p.name] === null) delete object[p.name];
      else object[p.name] = instance[p.name];
    }
    this.on.changed(header.typeName, key, object);
  }
}

// response is what a broker's challenge is answered with.
function response(clientName, secret, challenge, cnonce) {
  const utf8 = text => new TextEncoder().encode(text);
  const nonce = new Uint8Array(8);
  new DataView(nonce.buffer).setBigUint64(0, challenge, true);
  const join = (...parts) => Uint8Array.from(parts.flatMap(part => [...part]));
  const a1 = sha256(utf8(clientName + "::" + secret));
  const digest = sha256(join(a1, utf8(":"), nonce, utf8(":" + cnonce)));
  return [...digest].map(byte => byte.toString(16).padStart(2, "0")).join("");
}

// sha256 is SHA-256 (FIPS 180-4). The browser's own is not there for pages that come by plain HTTP.
function sha256(message) {
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every(p => n % p)) primes.push(n);
  const fraction = root => Math.floor((root - Math.floor(root)) * 2 ** 32) | 0;
  const k = primes.map(p => fraction(Math.cbrt(p)));
  const h = primes.slice(0, 8).map(p => fraction(Math.sqrt(p)));
  const padded = new Uint8Array((message.length + 9 + 63) & ~63);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(message.length) * 8n);
  const rotate = (x, n) => x >>> n | x << 32 - n;
  const w = new Int32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(block + 4 * i);
    for (let i = 16; i < 64; i++) {
      const s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >>> 3;
      const s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >>> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, last] = h;
    for (let i = 0; i < 64; i++) {
      const t1 = last + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (e & f ^ ~e & g) + k[i] + w[i];
      const t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + (a & b ^ a & c ^ b & c);
      last = g; g = f; f = e; e = d + t1 | 0; d = c; c = b; b = a; a = t1 + t2 | 0;
    }
    [a, b, c, d, e, f, g, last].forEach((value, i) => { h[i] = h[i] + value | 0; });
  }
  const digest = new DataView(new ArrayBuffer(32));
  h.forEach((value, i) => digest.setInt32(4 * i, value));
  return new Uint8Array(digest.buffer);
}
