"""How the HTML report looks: by day, by night, on a telephone and on paper."""

STYLE = """
:root { color-scheme: light dark; --text: #1c2126; --soft: #57616b; --line: #d9dee3; --back: #ffffff; --card: #f5f7f9;
  --low: #1a7f4b; --mid: #8a5a00; --high: #b3261e }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --soft: #9fa9b3; --line: #353c44; --back: #15181c;
  --card: #1e2329; --low: #5fcf94; --mid: #e3b341; --high: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; background: var(--back); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25 } h2 { margin: 2.5rem 0 .75rem; font-size: 1.15rem }
p { margin: .4rem 0 } .soft { color: var(--soft) } .name, summary, li, td { overflow-wrap: anywhere }
dl { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0 0 }
dl div { flex: 1 1 7rem; padding: .7rem 1rem; border-radius: .5rem; background: var(--card) }
dt { color: var(--soft); font-size: .85rem } dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums }
details { border-top: 1px solid var(--line) } details:last-of-type { border-bottom: 1px solid var(--line) }
summary { display: grid; grid-template-columns: 5.5rem 1fr 6rem; gap: .75rem; align-items: baseline;
  padding: .6rem .25rem; cursor: pointer }
summary:hover, summary:focus-visible { background: var(--card) }
summary .pages { text-align: right; white-space: nowrap }
summary .pages::after { content: "\\00A0\\00A0\\25B8" } details[open] .pages::after { content: "\\00A0\\00A0\\25BE" }
.risk { font-size: .85rem; font-weight: 600; white-space: nowrap } .risk::before { content: "\\25CF\\00A0" }
.low { color: var(--low) } .mid { color: var(--mid) } .high { color: var(--high) }
.inside { padding: 0 .25rem 1rem 6.5rem } .inside h3 { margin: .75rem 0 .25rem; font-size: .85rem; color: var(--soft) }
.inside ul, .inside ol { margin: 0; padding-left: 1.4rem } .inside li { margin: .25rem 0 }
table { width: 100%; border-collapse: collapse } td { padding: .4rem .25rem; border-top: 1px solid var(--line);
  vertical-align: top } td:first-child { width: 45% }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem }
@media (max-width: 34rem) { dl div { flex-basis: 40% } summary { grid-template-columns: 1fr auto }
  summary .name { grid-column: 1 / -1; grid-row: 2 } .inside { padding-left: .25rem } }
@media print { body { max-width: none; padding: 0 } summary { break-after: avoid } }
"""
