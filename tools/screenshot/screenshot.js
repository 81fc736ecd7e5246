// Opens a trace in the Perfetto UI in a headless Chromium and takes a picture of it.
//
//   node screenshot.js '{"ui": DIR, "trace": FILE, "out": FILE.png, "chromium": FILE, ...}'
//
// make_screenshot.py builds that argument and documents its fields. Prints one line of JSON about
// what was loaded; on failure prints why on stderr and exits with 1.
'use strict';
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');
const {chromium} = require('playwright-core');

const TIMEOUT_MS = 120_000;
const TRACE_URL = '/trace.pftrace';
const MIME = {
  '.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript', '.json': 'application/json',
  '.png': 'image/png', '.wasm': 'application/wasm', '.woff2': 'font/woff2',
};
const CHROMIUM_FLAGS = [
  '--no-sandbox',  // containers run as root, and the page is a local file
  '--disable-gpu', '--no-first-run', '--disable-sync', '--disable-quic',
  '--disable-background-networking', '--disable-component-update', '--hide-scrollbars',
];

// Serves the UI's files and the trace from one origin, so that no cross-origin rule applies.
function serve(ui, trace) {
  const server = http.createServer((request, response) => {
    const url = decodeURIComponent(new URL(request.url, 'http://x').pathname);
    const file = url === TRACE_URL ? trace : path.join(ui, url === '/' ? 'index.html' : url);
    if (!fs.existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, {'content-type': MIME[path.extname(file)] ?? 'application/octet-stream'});
    return fs.createReadStream(file).pipe(response);
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

// Panels that hold nothing in a still picture: minimap, status bar, the handle of the empty drawer.
const CLUTTER = '.pf-viewer-page__overview, .pf-statusbar, .pf-split-panel__handle';

// Runs in the page: arranges the tracks and the time window through the UI's own objects.
async function arrange({commands, hide, zoom}) {
  const workspace = app.trace.currentWorkspace ?? app.trace.workspaces.currentWorkspace;
  for (const regex of hide) {
    workspace.flatTracks.filter((track) => new RegExp(regex).test(track.name)).forEach((track) => track.remove());
  }
  for (const [id, ...args] of commands) {
    if (!app.commands.hasCommand(id)) throw new Error(`this Perfetto UI has no command ${id}`);
    await app.commands.runCommand(id, ...args);
  }
  app.trace.timeline.timestampFormat = 'microseconds';
  if (zoom) {
    const start = app.trace.traceInfo.start;
    app.trace.timeline.setViewportTime(start + BigInt(zoom[0]), start + BigInt(zoom[1]));
  }
}

// Runs in the page: says what was loaded, so that the caller can tell a picture of nothing.
async function describe() {
  const {trace} = app;
  const workspace = trace.currentWorkspace ?? trace.workspaces.currentWorkspace;
  const shown = (nodes) => nodes.flatMap((node) => [node.name, ...(node.expanded ? shown(node.children) : [])]);
  const window = trace.timeline.visibleWindow.toTimeSpan();
  const rows = await trace.engine.query('select count(*) as n from slice');
  return {
    slices: Number(rows.firstRow({n: 0n}).n),
    tracks: workspace.flatTracks.length,
    duration_ns: Number(trace.traceInfo.end - trace.traceInfo.start),
    window_ns: [window.start, window.end].map((time) => Number(time - trace.traceInfo.start)),
    rows: shown(workspace.children),
  };
}

async function open(page, origin, url) {
  // The page may talk to the local server only.
  await page.route('**/*', (route) => {
    const url = route.request().url();
    return /^(data|blob):/.test(url) || url.startsWith(origin) ? route.continue() : route.abort();
  });
  await page.goto(url);
  const complaint = page.locator('.pf-modal-dialog');
  const loaded = page.waitForFunction(() => window.app?.trace && !window.app.isLoadingTrace);
  await Promise.race([loaded, complaint.waitFor()]);
  if (await complaint.isVisible()) throw new Error(await complaint.innerText());
  await idle(page);
}

const idle = (page) => page.evaluate(() => window.waitForPerfettoIdle(500));

async function main(options) {
  const server = options.url ? null : await serve(options.ui, options.trace);
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'screenshot-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: options.chromium, headless: true, args: CHROMIUM_FLAGS,
    viewport: {width: options.width, height: options.height},
    deviceScaleFactor: options.scale, colorScheme: 'light',
  });
  try {
    const page = context.pages()[0] ?? await context.newPage();
    page.setDefaultTimeout(TIMEOUT_MS);
    if (server) {
      const origin = `http://127.0.0.1:${server.address().port}`;
      // testing=1 turns off animations, analytics and the question about cookies.
      const query = `mode=embedded&hideSidebar=true&url=${origin}${TRACE_URL}`;
      await open(page, origin, `${origin}/?testing=1#!/?${query}`);
    } else {
      await open(page, new URL(options.url).origin, options.url);
    }
    if (!options.full) await page.addStyleTag({content: `${CLUTTER} { display: none }`});
    await page.evaluate(arrange, options);
    await idle(page);
    await page.screenshot({path: options.out, type: 'png'});
    console.log(JSON.stringify(await page.evaluate(describe)));
  } finally {
    await context.close();
    server?.close();
    fs.rmSync(profile, {recursive: true, force: true});
  }
}

main(JSON.parse(process.argv[2])).then(() => process.exit(0), (error) => {
  console.error(error.stack ?? String(error));
  process.exit(1);
});
