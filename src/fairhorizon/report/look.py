"""The look of a page and what it does by itself: style and script, both inline."""

# charts are drawn with neutral colours; the rules on svg parts fit them to light and dark
STYLE = """
:root { --ground: #f6f7f9; --card: #fff; --ink: #1c2024; --soft: #5b6470; --line: #dfe3e8; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #111418; --card: #1a1e24; --ink: #e8eaed; --soft: #a3acb8; --line: #343b45; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
h3 { font-size: .95rem; margin: 1.25rem 0 .5rem; }
header p { color: var(--soft); max-width: 46rem; margin: 0 0 1.5rem; white-space: pre-line; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.25rem; margin-bottom: 1.25rem; }
.note { color: var(--soft); font-size: .875rem; margin: .75rem 0 0; }
.scroll { overflow-x: auto; }
summary { cursor: pointer; color: var(--soft); font-size: .875rem; padding: .25rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; white-space: nowrap; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: .35rem .6rem; }
tr.first td { border-top: 1px solid var(--line); }
.number, .plain th:nth-child(n + 6) { text-align: right; font-variant-numeric: tabular-nums; }
/* a border that is collapsed does not stay with a column that sticks */
.sortable { border-collapse: separate; border-spacing: 0; }
div + .scroll { margin-top: 1rem; }
.sortable td { border-top: 1px solid var(--line); }
.sortable :is(th, td):first-child { position: sticky; left: 0; background: var(--card); }
.sortable small, .paper { color: var(--soft); font-size: .75rem; }
td .paper { display: block; line-height: 1.2; }
button { all: unset; cursor: pointer; }
button:focus-visible { outline: 2px solid var(--soft); outline-offset: 2px; }
th button::after { content: "\\2195"; opacity: .35; padding-left: .2em; }
th[aria-sort=ascending] button::after { content: "\\2191"; opacity: 1; }
th[aria-sort=descending] button::after { content: "\\2193"; opacity: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; font-size: .8125rem; }
.legend button { display: inline-flex; align-items: center; gap: .4rem; }
.legend button[aria-pressed=false] { opacity: .35; }
/* auto-fill: the first chart is drawn, and measured, before the others are there */
.panels { display: grid; gap: 1.25rem; margin-top: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); }
.panels.single { grid-template-columns: minmax(0, 1fr); }
.panels > div { min-width: 0; }
.panels h3, .panels .note { margin: 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr));
  gap: .6rem 1.5rem; margin: 0; font-size: .9rem; }
dt { font-weight: 600; }
dd { margin: 0; color: var(--soft); }
pre { overflow-x: auto; margin: 0; font-size: .85rem; }
.infolayer text, [class$="tick"] text, .bartext { fill: var(--ink) !important; }
.gridlayer path, .spikeline { stroke: var(--line) !important; }
.layer-above .shapelayer path { stroke: var(--ink) !important; }
@media (max-width: 40rem) {
  main { padding: 1rem .5rem 2rem; }
  section { padding: 1rem .75rem; }
}
"""

# a heading sorts its table, the largest first at the first click; a legend hides and shows what it
# names, in every chart that has it
SCRIPT = """
document.addEventListener("click", ({target}) => {
  const button = target.closest("button");
  if (!button) return;
  if (button.dataset.chart) {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", shown);
    const traces = button.dataset.trace.split(" ").map(Number);
    for (const chart of button.dataset.chart.split(" ")) {
      Plotly.restyle(chart, {visible: shown}, traces);
    }
    return;
  }
  const head = button.closest(".sortable th");
  if (!head) return;
  const body = head.closest("table").tBodies[0];
  const sign = head.ariaSort === "descending" ? 1 : -1;
  const cell = row => row.cells[head.cellIndex];
  const numeric = head.classList.contains("number");
  const value = row => Number(cell(row).dataset.value ?? -sign * Infinity);
  const order = numeric
    ? (a, b) => sign * (value(a) - value(b) || 0)
    : (a, b) => -sign * cell(a).textContent.localeCompare(cell(b).textContent);
  for (const other of head.parentNode.cells) other.ariaSort = "none";
  head.ariaSort = sign < 0 ? "descending" : "ascending";
  body.append(...[...body.rows].sort(order));
});
"""
