// The page of `sirtaki top --web`. Names come from the job: they are only ever set as textContent.
'use strict'
const WINDOW_SECONDS = 600
const LEAST_SECONDS = 60
const BETWEEN_POINTS_SECONDS = 2
const MOST_LINES = 32
const COLOURS = 8
const PLOT = { left: 62, right: 12, top: 8, bottom: 22, height: 150 }
const FRAME = 24 // the frame of the figure around a chart
const CHARTS = [
  { field: 'step', title: 'STEP', shown: (value) => `${+(value * 1e3).toPrecision(3)} ms`, scale: 1e3 },
  { field: 'waiting', title: 'WAIT', shown: (value) => `${Math.round(value * 100)}%`, scale: 100, least: 1 },
  { field: 'bytes', title: 'BYTES/S', shown: (value) => `${bytes(value)}/s`, base: 1024 },
  { field: 'memory', title: 'MEMORY', shown: bytes, base: 1024 },
]
const COLUMNS = ['rank', 'step', 'computing', 'exposed', 'communicating', 'waiting', 'cpu', 'bytes', 'memory', 'does']
const at = (id) => document.getElementById(id)
const opened = new Map() // the stack of each rank with an open row, as far as it has arrived
let history = []
let sort = { column: 'rank', down: false }
let last = null

function made(tag, text, name) {
  const one = document.createElement(tag)
  if (text !== undefined) one.textContent = text
  if (name) one.className = name
  return one
}

function svg(tag, attributes, text) {
  const one = document.createElementNS('http://www.w3.org/2000/svg', tag)
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value)
  if (text !== undefined) one.textContent = text
  return one
}

function bytes(value) {
  const power = value < 1 ? 0 : Math.min(3, Math.floor(Math.log2(value) / 10))
  return `${+(value / 1024 ** power).toPrecision(3)} ${['B', 'KiB', 'MiB', 'GiB'][power]}`
}

function say(text) {
  if (at('state').textContent !== text) at('state').textContent = text
}

async function ask(path, options) {
  const reply = await fetch(path, { credentials: 'same-origin', ...options })
  if (!reply.ok) throw new Error((await reply.text()).trim())
  return reply
}

// ---- History ----

function keep(time, ranks) {
  // Of samples that are close together only the latest is kept.
  const before = history.at(-2)
  if (before && time - before.time < BETWEEN_POINTS_SECONDS && history.length > 2) history.pop()
  history.push({ time, ranks: new Map(ranks.map((one) => [one.rank, one])) })
  history = history.filter((one) => one.time >= time - WINDOW_SECONDS)
}

// ---- Charts ----

function shownRanks() {
  const ranks = [...(history.at(-1)?.ranks.values() ?? [])]
  const slow = ranks.filter((one) => one.slowest)
  return [...slow, ...ranks.filter((one) => !one.slowest)].slice(0, MOST_LINES).sort((a, b) => a.rank - b.rank)
}

const look = (one) => (one.slowest ? 'slowest' : `c${one.rank % COLOURS}`)

// Round up to 1, 2 or 5 times a power of ten, for bytes also times a power of 1024.
function rounded(most, { scale = 1, base = 10, least = 0 }) {
  if (least && most <= least) return least
  const value = most * scale || 1
  const unit = base === 10 ? 1 : base ** Math.max(0, Math.floor(Math.log(value) / Math.log(base)))
  const power = 10 ** Math.floor(Math.log10(value / unit))
  const factor = [1, 2, 4, 6, 8, 10].find((each) => each * power * unit >= value * 0.999999)
  return (factor * power * unit) / scale
}

const ago = (seconds) => (seconds === 0 ? 'now' : seconds % 60 ? `-${seconds} s` : `-${seconds / 60} min`)

function axes(chart, { width, most, seconds, kind, x, y }) {
  for (const part of [0, 0.5, 1]) {
    chart.append(svg('line', { x1: PLOT.left, x2: width - PLOT.right, y1: y(part * most), y2: y(part * most) }))
    chart.append(svg('text', { class: 'end', x: PLOT.left - 6, y: y(part * most) + 4 }, kind.shown(part * most)))
  }
  const between = seconds <= 60 ? 15 : seconds <= 150 ? 30 : seconds <= 300 ? 60 : 120
  for (let before = 0; before <= seconds; before += between) {
    const from = svg('line', { x1: x(before), x2: x(before), y1: y(0), y2: y(0) + 4 })
    const place = before === 0 ? 'end' : 'middle'
    const right = before === 0 ? width - 2 : Math.max(x(before), PLOT.left)
    chart.append(from, svg('text', { class: place, x: right, y: PLOT.height - 4 }, ago(before)))
  }
}

function drawn(kind) {
  const width = Math.max(220, parseFloat(getComputedStyle(at('charts')).gridTemplateColumns) - FRAME || 320)
  const now = history.at(-1)?.time ?? 0
  const seconds = Math.min(WINDOW_SECONDS, Math.max(LEAST_SECONDS, now - (history[0]?.time ?? now)))
  const ranks = shownRanks()
  const values = history.flatMap((one) => ranks.map((rank) => one.ranks.get(rank.rank)?.[kind.field])).filter(Number.isFinite)
  const most = rounded(Math.max(0, ...values), kind)
  const x = (before) => width - PLOT.right - ((width - PLOT.left - PLOT.right) * before) / seconds
  const y = (value) => PLOT.height - PLOT.bottom - ((PLOT.height - PLOT.top - PLOT.bottom) * value) / most
  const largest = ranks.reduce((best, one) => (one[kind.field] > (best?.[kind.field] ?? -1) ? one : best), null)
  const words = largest ? `most: ${kind.shown(largest[kind.field])}, rank ${largest.rank}` : 'no data yet'
  const chart = svg('svg', { viewBox: `0 0 ${width} ${PLOT.height}`, role: 'img', 'aria-label': `${kind.title} of each rank over time; ${words}` })
  axes(chart, { width, most, seconds, kind, x, y })
  for (const rank of ranks) {
    const points = history
      .filter((one) => Number.isFinite(one.ranks.get(rank.rank)?.[kind.field]))
      .map((one) => `${x(now - one.time).toFixed(1)},${y(one.ranks.get(rank.rank)[kind.field]).toFixed(1)}`)
    chart.append(svg('polyline', { points: points.join(' '), class: look(rank) }))
  }
  if (!values.length) {
    const why = kind.field === 'step' ? 'no data yet: needs an operation that comes again' : 'no data yet'
    chart.append(svg('text', { class: 'middle', x: (width + PLOT.left) / 2, y: 60 }, why))
  }
  const caption = made('figcaption')
  caption.append(made('span', kind.title), made('span', words))
  const figure = made('figure')
  figure.append(caption, chart)
  return figure
}

function drawCharts() {
  const ranks = shownRanks()
  const all = history.at(-1)?.ranks.size ?? 0
  at('legend').replaceChildren(
    ...ranks.map((one) => {
      const swatch = svg('svg', { viewBox: '0 0 30 10', 'aria-hidden': 'true' })
      swatch.append(svg('line', { x1: 0, x2: 30, y1: 5, y2: 5, class: look(one) }))
      const item = made('li')
      item.append(swatch, `rank ${one.rank}${one.slowest ? ', the straggler' : ''}`)
      return item
    }),
    ...(all > ranks.length ? [made('li', `and ${all - ranks.length} more, in the table`)] : []),
  )
  at('charts').replaceChildren(...CHARTS.map(drawn))
}

// ---- The table ----

function headings(words) {
  if (at('headings').childElementCount) return
  words.forEach((word, number) => {
    const button = made('button', word)
    button.onclick = () => {
      const column = COLUMNS[number]
      sort = { column, down: sort.column === column ? !sort.down : column !== 'rank' && column !== 'does' }
      drawTable()
    }
    const cell = made('th')
    cell.scope = 'col'
    cell.append(button)
    at('headings').append(cell)
  })
}

function compare(one, other) {
  const [a, b] = [one[sort.column], other[sort.column]]
  if (a === b) return one.rank - other.rank
  if (a === null || b === null) return a === null ? 1 : -1
  return (a < b ? -1 : 1) * (sort.down ? -1 : 1)
}

function rowOf(one) {
  const row = made('tr', undefined, one.slowest ? 'rank slowest' : 'rank')
  one.cells.forEach((text, number) => {
    const cell = made('td', number ? text : undefined)
    if (!number) {
      const button = made('button', text)
      button.dataset.rank = one.rank
      button.setAttribute('aria-expanded', opened.has(one.rank))
      button.setAttribute('aria-label', `Details of rank ${one.rank} on ${one.host}`)
      cell.append(button)
    }
    row.append(cell)
  })
  row.onclick = () => toggle(one.rank)
  return row
}

function detailsOf(one) {
  const list = made('dl')
  const facts = [
    ['Host', one.host],
    ['Process', one.pid ?? '-'],
    ...last.headings.slice(1).map((heading, number) => [heading, one.cells[number + 1]]),
    ['Operations', one.operations === null ? '-' : `${one.operations.toFixed(1)} a second`],
    ['Waits for', one.waits_for.length ? `rank ${one.waits_for.join(', ')}` : 'no rank'],
  ]
  for (const [name, value] of facts) {
    const pair = made('div')
    pair.append(made('dt', name), made('dd', value))
    list.append(pair)
  }
  const frames = made('pre', opened.get(one.rank))
  frames.id = 'frames'
  frames.tabIndex = 0
  frames.setAttribute('aria-label', `Stack of rank ${one.rank}`)
  const inside = made('div')
  inside.append(list, frames)
  const cell = made('td')
  cell.colSpan = last.headings.length
  cell.append(inside)
  const row = made('tr', undefined, 'details')
  row.append(cell)
  return row
}

function drawTable() {
  const rows = [...last.ranks].sort(compare).flatMap((one) => (opened.has(one.rank) ? [rowOf(one), detailsOf(one)] : [rowOf(one)]))
  const focused = document.activeElement?.dataset?.rank
  const scrolled = at('frames')?.scrollTop
  at('ranks').replaceChildren(...rows)
  if (focused) at('ranks').querySelector(`button[data-rank="${focused}"]`)?.focus()
  if (scrolled) at('frames').scrollTop = scrolled
  document.querySelector('table').hidden = !rows.length
  at('empty').hidden = rows.length > 0
}

// At most one row is open.
async function toggle(rank) {
  const wasOpen = opened.has(rank)
  opened.clear()
  if (wasOpen) return drawTable()
  opened.set(rank, `Asking rank ${rank} for its stack`)
  drawTable()
  let text
  try {
    text = await (await ask(`/stack?rank=${rank}`)).text()
  } catch (error) {
    text = error.message
  }
  if (opened.has(rank)) opened.set(rank, text)
  drawTable()
}

// ---- Updates ----

function end() {
  say('The job has ended.')
  at('empty').textContent = 'No rank is left: the charts show the last 10 minutes of the job.'
  if (!at('headings').childElementCount) drawCharts()
}

async function update() {
  const seen = await (await ask('/look')).json()
  at('job').textContent = seen.job
  document.title = `sirtaki top ${seen.job}`
  if (seen.ended) return end() ?? true
  last = seen
  keep(seen.time, seen.ranks)
  headings(seen.headings)
  drawCharts()
  drawTable()
  say(`${seen.ranks.length} ranks, every ${seen.interval} s`)
}

async function main() {
  const token = window.location.hash.slice(1)
  try {
    if (token) await ask('/session', { method: 'POST', body: token })
    window.history.replaceState(null, '', '/')
    for (const one of await (await ask('/history')).json()) keep(one.time, one.ranks)
    drawCharts()
    window.onresize = drawCharts
    while (!(await update())) await new Promise((done) => setTimeout(done, last.interval * 1000))
  } catch (error) {
    say(error instanceof TypeError ? '`sirtaki top` has ended.' : error.message)
  }
}
main()
