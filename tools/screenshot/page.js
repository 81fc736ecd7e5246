// Opens a page of `ikp report` in a headless Chromium, uses it, and prints what it saw as JSON.
//
//   node page.js '{"page": FILE, "out": FOLDER or null, "chromium": FILE}'
//
// check_page.py builds that argument and documents the answer.
'use strict';
const path = require('path');
const {pathToFileURL} = require('url');
const {chromium} = require('playwright-core');

const FLAGS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'];
const VIEWS = [[1080, 'light', true], [1080, 'dark', true], [420, 'light', true], [420, 'dark', false]];

// What a view shows: the time that it took, what is too wide, too small, or not as the trace says.
function seen() {
  const [entry] = performance.getEntriesByType('navigation');
  const sizes = [...document.querySelectorAll('svg text, p, td, th, pre, figcaption, button')]
    .filter((each) => each.getBoundingClientRect().width > 0)
    .map((each) => {
      const box = each.closest('svg[viewBox]');
      const scale = box ? box.getBoundingClientRect().width / box.viewBox.baseVal.width : 1;
      return parseFloat(getComputedStyle(each).fontSize) * scale;
    });
  return {
    load_ms: entry.loadEventEnd,
    wider_by: document.documentElement.scrollWidth - innerWidth,
    smallest_text: Math.min(...sizes),
    back: getComputedStyle(document.body).backgroundColor,
    buttons: document.querySelectorAll('.keys button').length,
  };
}

// Each panel's single boxes, [title, left, right], in parts of the panel's width.
function boxes() {
  return [...document.querySelectorAll('.panel')].map((panel) => {
    const whole = panel.getBoundingClientRect();
    return [...panel.querySelectorAll('.zoom > rect')].filter((each) => each.querySelector('title'))
      .map((each) => {
        const box = each.getBoundingClientRect();
        const left = (box.left - whole.left) / whole.width;
        return [each.querySelector('title').textContent, left, left + box.width / whole.width];
      });
  });
}

async function use(page) {
  const before = await page.evaluate(boxes);
  const plus = page.locator('.keys button').first();
  await plus.click();
  await plus.click();
  const zoomed = await page.evaluate(boxes);
  const panel = page.locator('.panel').first();
  await panel.scrollIntoViewIfNeeded();
  const area = await panel.boundingBox();
  await page.mouse.move(area.x + area.width / 2, area.y + area.height / 2);
  await page.mouse.down();
  await page.mouse.move(area.x + area.width / 2 - 50, area.y + area.height / 2, {steps: 5});
  await page.mouse.up();
  const moved = await page.evaluate(boxes);
  await panel.focus();
  await page.keyboard.press('0');
  const all = await page.evaluate(boxes);
  const [title] = before[0].find(([, left, right]) => right - left > 0.02 && left >= 0 && right <= 1);
  await page.locator('.panel .zoom > rect > title', {hasText: title}).first().locator('..').hover();
  const told = await page.locator('.told').first().textContent();
  return {before, zoomed, moved, all, title, told, width: area.width};
}

async function main({page: file, out, chromium: executablePath}) {
  const browser = await chromium.launch({executablePath, args: FLAGS});
  const complaints = [], views = [];
  let used = null;
  for (const [width, colorScheme, javaScriptEnabled] of VIEWS) {
    const context = await browser.newContext(
      {viewport: {width, height: 900}, colorScheme, javaScriptEnabled});
    const page = await context.newPage();
    page.on('console', (message) => complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('request', (request) => {
      if (!/^(file|data):/.test(request.url())) complaints.push(`asked for ${request.url()}`);
    });
    await page.goto(pathToFileURL(file).href, {waitUntil: 'load'});
    views.push({width, scheme: colorScheme, script: javaScriptEnabled, ...await page.evaluate(seen)});
    if (out) {
      const name = `${width}-${colorScheme}.png`;
      await page.screenshot({path: path.join(out, name), fullPage: true});
    }
    if (!used && await page.locator('.panel').count()) used = await use(page);
    await context.close();
  }
  await browser.close();
  console.log(JSON.stringify({views, complaints, used}));
}

main(JSON.parse(process.argv[2])).catch((error) => {
  console.error(String(error));
  process.exit(1);
});
