// Tables that follow an element of class "sortable": click a header to sort, type to filter, choose a value of a column.
// On a narrow screen rows become cards, for which every cell gets the name of its column.
"use strict";
document.querySelectorAll(".sortable").forEach((mark) => {
  const inside = mark.querySelector("table");
  let next = mark.nextElementSibling;
  while (!inside && next && !next.matches("table") && !next.querySelector("table")) next = next.nextElementSibling;
  const table = inside || (next && (next.matches("table") ? next : next.querySelector("table")));
  if (!table) return;
  table.classList.add("cards");
  const heads = [...table.querySelectorAll("thead th")];
  const rows = [...table.querySelectorAll("tbody tr")];
  rows.forEach((row) => [...row.children].forEach((cell, i) => { cell.dataset.label = heads[i].textContent; }));
  const text = (row, i) => row.children[i].textContent.trim();

  const bar = document.createElement("div");
  bar.className = "filters";
  const search = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter" });
  search.setAttribute("aria-label", "Filter rows by text");
  const count = document.createElement("span");
  count.setAttribute("aria-live", "polite");
  const choices = heads.map((head, i) => {
    const values = [...new Set(rows.map((row) => text(row, i)))].sort();
    if (values.length < 2 || values.length > 14 || values.some((value) => value.length > 40)) return null;
    const select = document.createElement("select");
    select.setAttribute("aria-label", `Only rows with this value of ${head.textContent}`);
    select.append(new Option(head.textContent, ""));
    values.filter(Boolean).forEach((value) => select.append(new Option(value, value)));
    return select;
  });
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row) => {
      const all = row.textContent.toLowerCase();
      const fits = words.every((word) => all.includes(word))
        && choices.every((select, i) => !select || !select.value || text(row, i) === select.value);
      row.hidden = !fits;
      shown += fits;
    });
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  [search, ...choices.filter(Boolean)].forEach((field) => field.addEventListener("input", show));
  bar.append(search, ...choices.filter(Boolean), count);
  const box = table.closest(".scroll, .md-typeset__scrollwrap") || table;
  box.before(bar);

  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const number = (row) => { const found = text(row, i).match(/^-?[\d.,]+/); return found ? parseFloat(found[0].replaceAll(",", "")) : NaN; };
      const compare = (a, b) => {
        const [x, y] = [number(a), number(b)];
        if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1; // values before words, both ways
        const order = Number.isNaN(x) ? text(a, i).localeCompare(text(b, i)) : x - y;
        return down ? -order : order;
      };
      rows.sort(compare).forEach((row) => row.parentNode.append(row));
    });
  });
  show();
});
