"use strict";
// Tables that can be sorted by a click on a heading, and searched. A row and what is said below it are one <tbody>.
for (const table of document.querySelectorAll("table.sortable")) {
  const bodies = () => Array.from(table.tBodies);
  const headings = table.tHead.rows[table.tHead.rows.length - 1].cells;
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Search " + bodies().length + " rows";
  search.setAttribute("aria-label", "Search the rows of this table");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const body of bodies()) {
      const text = body.textContent.toLowerCase();
      body.hidden = !words.every((word) => text.includes(word));
    }
  });
  table.parentElement.before(search);

  const key = (body, column) => {
    const cell = body.rows[0].cells[column];
    if (!cell || cell.colSpan > 1) return null;
    const text = cell.dataset.sort || cell.textContent.trim().replaceAll(",", "");
    const number = parseFloat(text);
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const missing = (value) => value === null || value === "";
  const order = (a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;
  };
  Array.from(headings).forEach((heading, column) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = bodies().map((body) => [key(body, column), body]);
      // what has no value stays last either way
      keyed.sort(([a], [b]) => (missing(a) || missing(b) ? order(a, b) : down ? order(b, a) : order(a, b)));
      table.append(...keyed.map(([, body]) => body));
    });
  });
}
