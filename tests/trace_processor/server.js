// Serves Perfetto's trace processor over HTTP on loopback: node server.js FOLDER
//
// FOLDER holds the Perfetto UI's own engine: engine_bundle.js and trace_processor*.wasm. The engine
// is a web worker that answers a stream of TraceProcessorRpc messages; this gives it the globals of
// a worker and translates between that stream and the REST calls that Perfetto's Python client
// makes. No npm package is needed. Prints "listening PORT" once it is ready.
'use strict';

const fs = require('fs');
const http = require('http');
const path = require('path');
const vm = require('vm');

const FOLDER = process.argv[2];

// Of TraceProcessorRpc.TraceProcessorMethod: what each REST call asks for, and the fields of
// TraceProcessorRpc that hold its argument and its result.
const CALLS = {
  '/parse': {method: 1, argument: 101, result: 201},
  '/notify_eof': {method: 2, result: 212},
  '/query': {method: 3, argument: 103, result: 203},
  '/status': {method: 10, result: 210},
};
const FIELD = {sequence: 1, method: 2, fatalError: 5};

// --- protobuf, as far as TraceProcessorRpc needs it ---

function varint(value) {
  const bytes = [];
  for (; value > 0x7f; value = Math.floor(value / 128)) bytes.push((value % 128) | 0x80);
  return Buffer.from([...bytes, value]);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

function readVarint(buffer, at) {
  let value = 0;
  for (let scale = 1; at < buffer.length; scale *= 128) {
    const byte = buffer[at++];
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) return {value, at};
  }
  return null; // cut off
}

// Yields [field, bytes] for each whole length-delimited field; numbers are skipped. Returns where
// the first field begins that is not there as a whole.
function* messages(buffer) {
  for (let at = 0; ;) {
    const key = readVarint(buffer, at);
    const next = key && readVarint(buffer, key.at);
    if (!next) return at;
    if (key.value % 8 === 0) {
      at = next.at;
      continue;
    }
    if (buffer.length < next.at + next.value) return at;
    at = next.at + next.value;
    yield [Math.floor(key.value / 8), buffer.subarray(next.at, at)];
  }
}

// --- the engine ---

// Compiling takes longer than anything else in a new engine, and gives the same each time.
const compiled = new Map();
const CachedWebAssembly = Object.create(WebAssembly);
CachedWebAssembly.Module = function (code) {
  if (code.byteLength < 1e6) return new WebAssembly.Module(code); // a probe for a feature
  if (!compiled.has(code.byteLength)) compiled.set(code.byteLength, new WebAssembly.Module(code));
  return compiled.get(code.byteLength);
};

class FileRequest { // the engine loads its wasm with a synchronous XMLHttpRequest
  open(_method, url) {
    this.url = url;
  }

  send() {
    const content = fs.readFileSync(path.join(FOLDER, path.basename(String(this.url))));
    this.response = content.buffer.slice(
        content.byteOffset, content.byteOffset + content.byteLength);
    this.status = 200;
  }
}

const source = fs.readFileSync(path.join(FOLDER, 'engine_bundle.js'), 'utf8');
const silent = () => {};

function startWorker() {
  const self = {location: {href: 'file:///engine_bundle.js'}};
  const globals = {
    self,
    WorkerGlobalScope: function () {},
    importScripts: silent,
    location: self.location,
    console: {log: silent, warn: silent, error: silent, info: silent, debug: silent},
    XMLHttpRequest: FileRequest,
    WebAssembly: CachedWebAssembly,
    // Without these the engine believes that it runs under node, and asks for files itself.
    process: undefined,
    require: undefined,
    module: undefined,
    exports: undefined,
    window: undefined,
    document: undefined,
  };
  const names = Object.keys(globals).join(',');
  vm.runInThisContext(`(function(${names}){${source}\n})`)(...Object.values(globals));
  return self;
}

class Engine {
  // The worker doesn't say when it is ready, and breaks if it is asked too early.
  static async start() {
    for (let milliseconds = 5; ; milliseconds *= 2) {
      const engine = new Engine();
      await new Promise((done) => setTimeout(done, milliseconds));
      if (engine.isReady()) return engine;
    }
  }

  constructor() {
    this.sequence = 0;
    this.pending = Buffer.alloc(0);
    this.replies = [];
    // The worker is handed a MessagePort; this one calls straight through, so that each request
    // is answered when the call returns.
    this.port = {postMessage: (data) => this.receive(data)};
    startWorker().onmessage({data: this.port});
  }

  isReady() {
    try {
      return this.call('/status').length > 0;
    } catch {
      return false;
    }
  }

  receive(data) {
    this.pending = Buffer.concat([this.pending, Buffer.from(data)]);
    const stream = messages(this.pending);
    let next = stream.next();
    for (; !next.done; next = stream.next()) this.replies.push(next.value[1]);
    this.pending = this.pending.subarray(next.value);
  }

  call(name, content) {
    const {method, argument, result} = CALLS[name];
    const parts = [number(FIELD.sequence, this.sequence++), number(FIELD.method, method)];
    if (argument) parts.push(bytes(argument, content));
    this.port.onmessage({data: new Uint8Array(bytes(1, Buffer.concat(parts)))});
    const found = [];
    for (const reply of this.replies.splice(0)) {
      for (const [field, value] of messages(reply)) {
        if (field === FIELD.fatalError) throw new Error(value.toString());
        if (field === result) found.push(value);
      }
    }
    return Buffer.concat(found); // protobuf messages merge when they are put end to end
  }
}

// --- the server ---

async function main() {
  let engine = await Engine.start();

  async function answer(url, content) {
    if (url === '/restart') { // not one of Perfetto's: a new engine, for another trace
      engine = null;
      engine = await Engine.start();
      return Buffer.alloc(0);
    }
    return url in CALLS ? engine.call(url, content) : null;
  }

  const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', async () => {
      try {
        const reply = await answer(request.url, Buffer.concat(parts));
        response.writeHead(reply ? 200 : 404).end(reply);
      } catch (error) {
        response.writeHead(500).end(String(error));
      }
    });
  });
  server.keepAliveTimeout = 0;  // a test may take long between two queries
  server.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
  process.stdin.on('end', () => process.exit()).resume(); // stops with whoever started it
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
