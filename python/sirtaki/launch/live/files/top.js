// The page of `sirtaki top --web`. Names come from the job: they are only ever set as textContent.
'use strict'
const KEPT = 120
const MOST_LINES = 64
const CHARTS = [
  ['step', 'Step', 1],
  ['waiting', 'Wait', 5],
  ['bytes', 'Bytes/s', 7],
  ['memory', 'Memory', 8],
]
const COLUMNS = ['rank', 'step', 'computing', 'exposed', 'communicating', 'waiting', 'cpu', 'bytes', 'memory', 'does']
const at = (id) => document.getElementById(id)
const history = []
let sort = { column: 'rank', down: false }
let last = null

function made(tag, text, name) {
  const one = document.createElement(tag)
  if (text !== undefined) one.textContent = text
  if (name) one.className = name
  return one
}

function svg(tag, attributes) {
  const one = document.createElementNS('http://www.w3.org/2000/svg', tag)
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value)
  return one
}

function say(text) {
  if (at('state').textContent !== text) at('state').textContent = text
}

async function ask(path, options) {
  const reply = await fetch(path, { credentials: 'same-origin', ...options })
  if (!reply.ok) throw new Error((await reply.text()).trim())
  return reply
}

function lineOf(field, rank, most) {
  const points = []
  history.forEach((look, number) => {
    const value = look.get(rank)?.[field]
    if (typeof value === 'number') points.push(`${100 - ((history.length - 1 - number) * 100) / (KEPT - 1)},${49 - (value / most) * 47}`)
  })
  return points.join(' ')
}

function drawCharts() {
  at('charts').replaceChildren(
    ...CHARTS.map(([field, title, cell]) => {
      const values = history.flatMap((look) => [...look.values()].map((one) => one[field])).filter(Number.isFinite)
      const most = Math.max(...values, 1e-9)
      const largest = last.ranks.reduce((best, one) => (one[field] > (best?.[field] ?? -1) ? one : best), null)
      const caption = made('figcaption')
      caption.append(made('span', title), made('span', largest ? `most: ${largest.cells[cell]}, rank ${largest.rank}` : '-'))
      const chart = svg('svg', { viewBox: '0 0 100 50', preserveAspectRatio: 'none', role: 'img', 'aria-label': title })
      for (const one of last.ranks.slice(0, MOST_LINES)) {
        const line = svg('polyline', { points: lineOf(field, one.rank, most) })
        if (one.slowest) line.setAttribute('class', 'slowest')
        chart.append(line)
      }
      const figure = made('figure')
      figure.append(caption, chart)
      return figure
    }),
  )
}

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

function drawTable() {
  const rows = [...last.ranks].sort(compare).map((one) => {
    const row = made('tr', undefined, one.slowest ? 'slowest' : '')
    row.title = one.host
    one.cells.forEach((text, number) => {
      const cell = made('td', number ? text : undefined)
      if (!number) {
        const button = made('button', text)
        button.title = `Stack of rank ${one.rank} on ${one.host}`
        button.onclick = () => openStack(one.rank)
        cell.append(button)
      }
      row.append(cell)
    })
    return row
  })
  const focused = document.activeElement?.title
  at('ranks').replaceChildren(...rows)
  if (focused) rows.map((row) => row.querySelector('button')).find((each) => each.title === focused)?.focus()
}

async function openStack(rank) {
  at('stack').hidden = false
  at('frames').textContent = `Asking rank ${rank}`
  try {
    at('frames').textContent = await (await ask(`/stack?rank=${rank}`)).text()
  } catch (error) {
    at('frames').textContent = error.message
  }
}

async function look() {
  last = await (await ask('/look')).json()
  if (last.ended) return say('The job has ended.')
  at('job').textContent = last.job
  document.title = `sirtaki top ${last.job}`
  history.push(new Map(last.ranks.map((one) => [one.rank, one])))
  if (history.length > KEPT) history.shift()
  headings(last.headings)
  drawCharts()
  drawTable()
  say(`${last.ranks.length} ranks`)
}

async function main() {
  at('close').onclick = () => (at('stack').hidden = true)
  const token = window.location.hash.slice(1)
  try {
    if (token) await ask('/session', { method: 'POST', body: token })
    window.history.replaceState(null, '', '/')
    while (!last?.ended) {
      await look()
      await new Promise((done) => setTimeout(done, last.interval * 1000))
    }
  } catch (error) {
    say(error instanceof TypeError ? '`sirtaki top` has ended.' : error.message)
  }
}
main()
