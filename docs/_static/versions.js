// Lets a reader change to the same page of another version. The file versions.json, beside the folders of all
// versions, lists these folders, the newest first: ["1.1.0", "1.0.0"]. Without that file this version is the only one.
(async () => {
  const place = document.querySelector('.versions')
  if (!place || location.protocol === 'file:') return
  const root = new URL(document.documentElement.dataset.content_root, location.href)
  const page = location.pathname.slice(root.pathname.length)
  const own = root.pathname.split('/').at(-2)
  const answer = await fetch(new URL('../versions.json', root)).catch(() => null)
  const listed = answer?.ok ? await answer.json() : []
  const versions = listed.includes(own) ? listed : [own, ...listed]
  if (versions.length < 2) return

  const choice = document.createElement('select')
  for (const each of versions) choice.add(new Option(each, each, false, each === own))
  choice.setAttribute('aria-label', 'Version')
  choice.addEventListener('change', async () => {
    const home = new URL(`../${choice.value}/`, root)
    const same = new URL(page, home)
    const answer = await fetch(same, { method: 'HEAD' }).catch(() => null)
    location.assign(answer?.ok ? same : home)
  })
  place.replaceChildren('Version ', choice)
})()
