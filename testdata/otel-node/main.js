// A process that publishes OpenTelemetry's process context with libdatadog, as Datadog's tracer for
// Node.js does. Each update has its payload elsewhere, and the old one is freed. It is driven by
// package internal/lab/demo:
//
//     node main.js [busy]
//
// Commands are lines of standard input, at whose end it ends:
//
//     publish {"service":"shop","environment":"production","version":"1","instanceID":"...",
//              "schema":"tlsdesc_v1_dev","keys":["http.route"]}
//
// Without schema it publishes none, and no keys; datadog.local_root_span_id precedes these. Each is
// answered by a line of JSON. With busy, it burns CPU.
'use strict'

const readline = require('node:readline')
const discovery = require('@datadog/libdatadog-extras').load('process-discovery')

let published // the metadata for Datadog's own agent, which lives as long as this

function publish (s) {
  const metadata = new discovery.TracerMetadata(s.instanceID || null, '1.0.0', 'demo', s.service || null,
    s.environment || null, s.version || null, null, null)
  if (s.schema) {
    metadata.threadlocalMetadata = { schemaVersion: s.schema, attributeKeys: s.keys || [], extraAttributes: [] }
  }
  published = discovery.storeMetadata(metadata)
}

function answer (line) {
  const [command, text] = line.split(/ (.*)/s)
  try {
    if (command !== 'publish') throw new Error(`unknown command ${command}`)
    publish(JSON.parse(text))
    return { event: 'published', reply: true }
  } catch (e) {
    return { event: 'error', reply: true, error: String(e) }
  }
}

let ended = false

function burn () {
  for (const end = Date.now() + 5; Date.now() < end;);
  if (!ended) setImmediate(burn)
}

const lines = readline.createInterface({ input: process.stdin })
lines.on('line', line => console.log(JSON.stringify(answer(line))))
lines.on('close', () => { ended = true })
if (process.argv[2] === 'busy') burn()
console.log(JSON.stringify({ event: 'ready', pid: process.pid }))
