#pragma once

/// Style sheets and the script of pages.

namespace fq::html {

inline constexpr const char* page_style = R"css(
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --text: #1a2230; --soft: #5d6878; --line: #dfe3ea; --rail: #e9ecf1;
  --head: #eef1f5; --hover: #f3f6fb; --fill: #9fb3cc; --beyond: #e5484d; --link: #1f5fbf; --good: #d5e3f7;
  --force: #1a2230; --max: #c2410c; --percentile: #2563eb; --entropy: #0f8a5f; --mse: #a16207; --octav: #9333ea; }
@media (prefers-color-scheme: dark) { :root {
  --page: #10141a; --card: #181e27; --text: #e4e9f0; --soft: #98a4b5; --line: #2b3442; --rail: #262e3a;
  --head: #1f2733; --hover: #1d2530; --fill: #4f6584; --beyond: #f2555a; --link: #7fb0ff; --good: #24395a;
  --force: #f4f7fb; --max: #fb923c; --percentile: #60a5fa; --entropy: #34d399; --mse: #eab308; --octav: #c084fc; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 5rem; }
[hidden] { display: none; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1480px; margin: 0 auto; padding: 28px 28px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 40px 0 4px; }
h3 { font-size: 14px; margin: 0; overflow-wrap: anywhere; }
p { margin: 0 0 12px; color: var(--soft); max-width: 110ch; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
code, .name { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .93em; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px; margin: 22px 0 0; }
.tile, .card, .sheet { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 14px 16px; min-width: 0; }
.tile b { display: block; font-size: 24px; font-weight: 650; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); }
.tile .note { display: block; overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 18px; margin: 8px 0 12px; color: var(--soft); }
.legend span::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 5px;
  margin-right: 6px; background: var(--c); }
.m-force { --c: var(--force); } .m-max { --c: var(--max); } .m-percentile { --c: var(--percentile); }
.m-entropy { --c: var(--entropy); } .m-mse { --c: var(--mse); } .m-octav { --c: var(--octav); }
.m-beyond { --c: var(--beyond); }
.f-0 { --c: #2563eb; } .f-1 { --c: #0d9488; } .f-2 { --c: #d97706; } .f-3 { --c: #9333ea; } .f-4 { --c: #db2777; }
.f-5 { --c: #64748b; }
svg.plan { display: block; width: 100%; height: 112px; margin: 4px 0 6px; border-bottom: 1px solid var(--soft); }
svg.plan rect { fill: var(--c); stroke: var(--page); stroke-width: 1; vector-effect: non-scaling-stroke; }
svg.plan rect:hover { opacity: .75; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 12.5px; }
th, td { padding: 5px 7px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
tbody tr:last-child td { border-bottom: 0; }
th.text, td.text { text-align: left; }
thead { position: sticky; top: 0; z-index: 2; }
thead th { background: var(--head); font-weight: 600; color: var(--soft); }
thead tr:first-child th:first-child { border-top-left-radius: 10px; }
thead tr:first-child th:last-child { border-top-right-radius: 10px; }
thead th.group { text-align: center; border-left: 1px solid var(--line); }
th.first, td.first { border-left: 1px solid var(--line); }
tbody tr:hover td { background: var(--hover); }
thead button { all: unset; cursor: pointer; }
thead button:hover { color: var(--text); }
thead button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 3px; }
[aria-sort] { color: var(--text); }
[aria-sort="ascending"] button::after { content: " \2191"; }
[aria-sort="descending"] button::after { content: " \2193"; }
td.taken { font-weight: 650; }
td.range { white-space: normal; }
td.sqnr { background: linear-gradient(to right, var(--good) var(--v, 0%), transparent 0) no-repeat; }
.dot::before { content: ""; display: inline-block; width: 8px; height: 8px; border-radius: 4px; margin-right: 5px;
  background: var(--c); }
td.unknown, .soft { color: var(--soft); }
.tools { margin: 12px 0; }
input[type=search] { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 6px 12px; width: 320px; max-width: 100%; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 560px), 1fr)); gap: 18px; }
.card { padding: 16px 18px 12px; break-inside: avoid; }
.card:target { outline: 2px solid var(--link); }
.card .facts { color: var(--soft); font-size: 13px; margin: 0 0 8px; max-width: none; overflow-wrap: anywhere; }
.card .note { font-size: 13px; margin: 6px 0 4px; }
.card table { margin-top: 6px; font-size: 13px; }
.card thead { position: static; }
.card thead th { background: none; font-weight: 500; padding-top: 0; }
.card th, .card td { padding: 2px 6px; }
.card th:first-child, .card td:first-child { padding-left: 0; }
.card tbody td { border-bottom: 0; }
.card tbody tr:hover td { background: none; }
.card td.text::before { content: ""; display: inline-block; width: 9px; height: 9px; border-radius: 5px;
  margin-right: 8px; background: var(--c); }
.card tr.m-force td { font-weight: 650; }
svg.histogram { display: block; width: 100%; height: auto; }
svg.thumbnail { display: block; width: 80px; height: 24px; }
svg text { font-size: 11px; fill: var(--soft); }
svg .count, svg .row { text-anchor: end; }
svg .tick, svg .none { text-anchor: middle; }
svg .power { font-size: 8px; }
@media (max-width: 640px) { /* figures shrink there, their words do not */
  main { padding: 16px 12px 40px; }
  .card { padding: 12px 10px 10px; }
  .card table { display: block; overflow-x: auto; }
  svg.histogram { overflow: visible; }
  svg.histogram text { font-size: 18px; }
  svg.histogram .tick { transform: translateY(4px); }
  svg.histogram .row { font-size: 14px; }
  svg.histogram .power { font-size: 13px; } }
svg .grid { stroke: var(--rail); }
svg .axis { stroke: var(--soft); stroke-width: .75; }
svg .rail { stroke: var(--rail); stroke-width: 1.5; }
svg .counts { fill: var(--fill); }
svg .beyond { fill: var(--beyond); }
svg .mark { fill: none; stroke: var(--c); stroke-width: 1.4; }
svg .band { fill: var(--force); opacity: .09; }
svg .row { fill: var(--c); }
svg .bar, svg circle { fill: var(--c); }
svg .m-force .mark { stroke-width: 2; }
svg .m-force .row { font-weight: 650; }
svg g:hover .mark { stroke-width: 3; }
svg g:hover .row { font-weight: 650; }
@media (max-width: 1240px) { .sheet { overflow-x: auto; } .sheet thead { position: static; } }
@media (max-width: 600px) { main { padding: 18px 14px 40px; } }
@media print { body { background: none; } .tools { display: none; } thead { position: static; } }
)css";

/// Sorts tables of class `sortable` by a column with a `data-key`: on a click on its heading, or by the
/// fragment "#sort=sqnr" (ascending) or "#sort=-sqnr" (descending). Cells with `data-v` sort as numbers, and
/// empty cells come last. Adds a search field to the element of class `tools`. The field hides rows and cards
/// whose names do not contain its text; `data-of` is the noun in its placeholder.
inline constexpr const char* page_script = R"js(
const keys = [...document.querySelectorAll('table.sortable th[data-key]')];
const value = (row, column) => {
  const cell = row.cells[column];
  if (cell.dataset.v === undefined) return cell.textContent;
  return cell.dataset.v === '' ? null : Number(cell.dataset.v);
};
function sort(head, down) {
  const table = head.closest('table'), column = Number(head.dataset.column), sign = down ? -1 : 1;
  const rows = [...table.tBodies[0].rows].sort((p, q) => {
    const a = value(p, column), b = value(q, column);
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === 'string' ? a.localeCompare(b, 'en', {numeric: true}) : a < b ? -1 : a > b ? 1 : 0);
  });
  table.tBodies[0].append(...rows);
  for (const other of table.querySelectorAll('th[data-key]')) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
}
for (const head of keys) {
  const button = document.createElement('button');
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener('click', () => sort(head, head.getAttribute('aria-sort') === 'ascending'));
}
function follow() {
  const wanted = /^#sort=(-?)(.+)$/.exec(decodeURIComponent(location.hash));
  const head = wanted && keys.find(key => key.dataset.key === wanted[2]);
  if (head) sort(head, wanted[1] === '-');
}
addEventListener('hashchange', follow);
follow();
const tools = document.querySelector('.tools');
const field = document.createElement('input');
field.type = 'search';
field.placeholder = `Show ${tools.dataset.of} whose name has …`;
field.setAttribute('aria-label', 'Filter by name');
field.addEventListener('input', () => {
  const text = field.value.toLowerCase();
  for (const item of document.querySelectorAll('[data-name]'))
    item.hidden = !item.dataset.name.toLowerCase().includes(text);
});
tools.append(field);
)js";

inline constexpr const char* run_style = R"css(
svg .curve { fill: none; stroke: var(--c, var(--link)); stroke-width: 1.6; stroke-linejoin: round; }
svg circle.hollow { fill: none; stroke: var(--c); stroke-width: 1.6; }
svg .narrow { display: none; }
@media (max-width: 640px) { svg .narrow { display: inline; } svg .wide { display: none; } }
svg.spark { display: inline-block; width: 120px; height: 24px; vertical-align: middle; }
.work { display: flex; height: 26px; border-radius: 8px; overflow: hidden; margin: 8px 0; background: var(--rail); }
.work span { background: var(--c); min-width: 1px; }
.f-6 { --c: #65a30d; } .f-7 { --c: #0891b2; } .f-8 { --c: #b91c1c; } .f-9 { --c: #a16207; }
.sheet { overflow-x: auto; margin: 8px 0 18px; }
.sheet thead { position: static; }
table.matrix { width: auto; margin: 8px 0 18px; }
table.matrix th, table.matrix td { padding: 3px 8px; text-align: center; min-width: 34px; border-bottom: 0; }
table.matrix th.text { text-align: right; font-weight: 500; color: var(--soft); }
table.matrix td.right { background: color-mix(in srgb, #0d9488 var(--v), var(--card)); }
table.matrix td.wrong { background: color-mix(in srgb, #e5484d var(--v), var(--card)); }
table.matrix td.strong { color: #fff; }
details { margin: 12px 0; } summary { cursor: pointer; color: var(--link); }
details table { width: auto; } details td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
)css";

}  // namespace fq::html
