// Tables whose rows have keys: they are updated in place, walked with j and k, and can be selected.

import { h } from "./dom.js";

// columns: [{ title, className, key, hint }]; key: the name by which a click on the title sorts
export function table({ label, columns, className, onSort, sorted, selectable = false, onSelect }) {
  const rows = new Map();
  const selected = new Set();
  const body = h("tbody");
  const all = selectable ? h("input", { type: "checkbox", "aria-label": "Select all rows shown", onchange: () => {
    for (const [key, row] of rows) choose(key, row, all.checked);
    changed();
  } }) : null;
  const head = columns.map((column) => {
    // of a column of buttons, each says itself what it is
    if (!column.title) return h("td", { class: column.className });
    if (!column.key || !onSort) return h("th", { scope: "col", class: column.className, title: column.hint }, column.title);
    const isSorted = sorted?.key === column.key;
    return h("th", { scope: "col", class: column.className, title: column.hint, "aria-sort": isSorted ? (sorted.isUp ? "ascending" : "descending") : undefined },
      h("button.sort", { type: "button", onclick: () => onSort(column.key) }, column.title, isSorted ? h("span", { "aria-hidden": "true" }, sorted.isUp ? " ↑" : " ↓") : null));
  });
  const element = h("div.scroll", { role: "region", "aria-label": label, tabindex: "0" },
    h(`table.rows${className ? `.${className}` : ""}`, {}, h("thead", {}, h("tr", {}, selectable ? h("th.check", {}, all) : null, head)), body));

  function choose(key, row, isChosen) {
    if (isChosen) selected.add(key); else selected.delete(key);
    row.box.checked = isChosen;
    row.element.classList.toggle("is-selected", isChosen);
  }

  function changed() {
    if (all) {
      all.checked = selected.size > 0 && selected.size === rows.size;
      all.indeterminate = selected.size > 0 && selected.size < rows.size;
    }
    onSelect?.(selected);
  }

  function make(key, cells, href) {
    const element_ = h("tr", { data: { key } });
    const row = { element: element_, cells: [], box: null, href };
    if (selectable) {
      row.box = h("input", { type: "checkbox", "aria-label": `Select ${key}`, onchange: () => { choose(key, row, row.box.checked); changed(); } });
      element_.append(h("td.check", {}, row.box));
    }
    row.cells = cells.map((cell, n) => h(n ? "td" : "th", { scope: n ? undefined : "row", class: columns[n].className, data: { label: columns[n].title } }, cell));
    element_.append(...row.cells);
    return row;
  }

  return {
    element,
    selected,
    has: (key) => rows.has(key),
    get size() { return rows.size; },
    // one row: its cells are nodes or texts, in the order of the columns
    put(key, cells, href) {
      let row = rows.get(key);
      if (!row) {
        row = make(key, cells, href);
        rows.set(key, row);
        body.append(row.element);
        return row;
      }
      cells.forEach((cell, n) => {
        if (cell instanceof Node) row.cells[n].replaceChildren(cell);
        else if (row.cells[n].textContent !== String(cell)) row.cells[n].textContent = String(cell);
      });
      return row;
    },
    cell: (key, n) => rows.get(key)?.cells[n],
    row: (key) => rows.get(key)?.element,
    drop(key) {
      rows.get(key)?.element.remove();
      rows.delete(key);
      if (selected.delete(key)) changed();
    },
    keys: () => [...rows.keys()],
    order(keys) {
      keys.forEach((key, index) => {
        const row = rows.get(key)?.element;
        if (row && body.children[index] !== row) body.insertBefore(row, body.children[index] || null);
      });
    },
    clear() { rows.clear(); selected.clear(); body.replaceChildren(); changed(); },
    unselect() { for (const [key, row] of rows) choose(key, row, false); changed(); },
  };
}
