// Look at the built pages in a browser: axe-core for accessibility, requests to other hosts, the way from one
// version to another, what the search finds, and pictures of some pages at two widths, light and dark. node browse.mjs FOLDER PICTURES; CHROMIUM names another browser.
import fs from 'node:fs'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import puppeteer from 'puppeteer-core'

const [folder, pictures] = process.argv.slice(2).map((each) => path.resolve(each))
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const WIDTHS = [390, 1280]
const LOOKED_AT = ['index', 'get-started/pytorch', 'howto/debugging-a-hang', 'from/ddp', 'reference/api/torch', 'design/benchmarks']
const SEARCHED = ['conda', 'apptainer', 'multi-node', 'DDP slow']
const SERIOUS = ['serious', 'critical']

const pages = fs
  .readdirSync(folder, { recursive: true })
  .filter((name) => name.endsWith('.html') && !name.startsWith('_static'))
  .sort()
const wrong = new Set()
fs.mkdirSync(pictures, { recursive: true })
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
})

async function open(name, width, scheme) {
  const page = await browser.newPage()
  await page.setViewport({ width, height: 900 })
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
  page.on('request', (request) => {
    if (!/^(file|data|blob):/.test(request.url())) wrong.add(`${name}: asks for ${request.url()}`)
  })
  page.on('pageerror', (error) => wrong.add(`${name}: ${error}`))
  await page.goto(pathToFileURL(path.join(folder, name)).href)
  return page
}

// The pages as versions 1 and 2 of a site, on a server of this machine. Version 1 lacks one page.
async function serve() {
  const server = http.createServer((request, response) => {
    const [, version, ...rest] = new URL(request.url, 'http://here').pathname.split('/')
    const file = path.join(folder, ...rest)
    if (version === 'versions.json') return response.end('["2", "1"]')
    if (!fs.existsSync(file) || (version === '1' && rest.at(-1) === 'ddp.html')) response.statusCode = 404
    const type = { '.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript', '.svg': 'image/svg+xml' }[path.extname(file)]
    if (type) response.setHeader('Content-Type', type)
    return response.end(response.statusCode === 200 && fs.statSync(file).isFile() ? fs.readFileSync(file) : '')
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { server, site: `http://127.0.0.1:${server.address().port}` }
}

async function changeVersion(site, from, to) {
  const page = await browser.newPage()
  await page.setViewport({ width: 1440, height: 900 })
  await page.goto(`${site}/${from}`)
  await page.waitForSelector('.versions select')
  await Promise.all([page.waitForNavigation(), page.select('.versions select', '1')])
  const reached = page.url().slice(site.length + 1)
  if (reached !== to) wrong.add(`from ${from} the choice of version 1 leads to ${reached}, not to ${to}`)
  await page.close()
}

async function search(site, words) {
  const page = await browser.newPage()
  await page.goto(`${site}/2/search.html?q=${encodeURIComponent(words)}`)
  await page.waitForFunction(() => /matching|did not match/.test(document.querySelector('.search-summary')?.textContent))
  const found = await page.$$eval('#search-results li a', (links) => links.length)
  if (!found) wrong.add(`the search for ${words} finds nothing`)
  await page.close()
}

const { server, site } = await serve()
await changeVersion(site, '2/tutorials/collectives.html', '1/tutorials/collectives.html')
await changeVersion(site, '2/from/ddp.html', '1/')
for (const words of SEARCHED) await search(site, words)
server.close()

for (const scheme of ['light', 'dark']) {
  for (const name of pages) {
    const page = await open(name, 1440, scheme)
    for (const width of WIDTHS) {
      await page.setViewport({ width, height: 900 })
      const wide = await page.evaluate(() => document.documentElement.scrollWidth)
      if (wide > width) wrong.add(`${name}: ${wide} pixels wide in a window of ${width}`)
    }
    await page.setViewport({ width: 1440, height: 900 })
    await page.evaluate(axe)
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }))
    for (const fault of found.violations.filter((each) => SERIOUS.includes(each.impact))) {
      const where = fault.nodes.slice(0, 3).map((node) => node.target.join(' '))
      wrong.add(`${name} (${scheme}): ${fault.id}: ${fault.help}; ${fault.nodes.length} places, such as ${where.join(', ')}`)
    }
    await page.close()
  }
}
for (const name of LOOKED_AT) {
  for (const width of WIDTHS) {
    for (const scheme of ['light', 'dark']) {
      const page = await open(`${name}.html`, width, scheme)
      const contents = await page.$eval('.toc-drawer', (drawer) => drawer.getBoundingClientRect().right)
      if (width === 1280 && contents > width) wrong.add(`${name}.html: its contents are not seen at ${width}`)
      await page.screenshot({ path: path.join(pictures, `${name.replaceAll('/', '-')}-${width}-${scheme}.png`) })
      await page.close()
    }
  }
}
await browser.close()
console.log([...wrong].join('\n') || `${pages.length} pages, light and dark: no serious fault, no request to another host`)
process.exitCode = wrong.size ? 1 : 0
