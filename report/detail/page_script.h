#pragma once

/// The script of the calibration page, which reads as well without it.

namespace fq::html {

/// Sorts the tables of class `sortable` by their columns with a `data-key`: on a click, and by the fragment
/// "#sort=sqnr" or, downwards, "#sort=-sqnr". Cells with `data-v` are numbers, those that are empty come
/// last. And a field, in the element of class `tools`, that leaves the lines and cards whose names hold a
/// text; `data-of` says of what the names are.
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

}  // namespace fq::html
