"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.textContent.trim();
    const number = Number(text.replace(/[,+]/g, ""));
    return text === "" || Number.isNaN(number) ? text : number;
  };
  // Numbers before words, so that a dash for "none" stands at the end of a column of numbers.
  const compare = (a, b) =>
    typeof a === typeof b ? (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true })) : typeof a === "number" ? -1 : 1;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const sort = () => {
      const falls = head.ariaSort === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.ariaSort = falls ? "descending" : "ascending";
      const rows = [...body.rows].sort((a, b) => compare(value(a, column), value(b, column)));
      body.append(...(falls ? rows.reverse() : rows));
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
}
for (const input of document.querySelectorAll(".filter input")) {
  const rows = input.closest(".filter").nextElementSibling.querySelectorAll("tbody tr");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
