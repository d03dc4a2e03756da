"use strict";
// Sorting, hover values and the theme switch of a report page.
const tip = document.getElementById("tip");
document.querySelectorAll("svg title").forEach((title) => {
  title.parentNode.dataset.tip = title.textContent; // one tooltip, not the browser's and ours
  title.remove();
});
function showTip(target, x, y) {
  tip.textContent = target.dataset.tip;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, window.innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? y - box.height - 8 : y + 18}px`;
}
document.addEventListener("pointermove", (event) => {
  const target = event.target.closest && event.target.closest("[data-tip]");
  if (target) showTip(target, event.clientX, event.clientY);
  else tip.hidden = true;
});
document.addEventListener("focusin", (event) => {
  const target = event.target.closest("th[data-tip]");
  if (target) { const box = target.getBoundingClientRect(); showTip(target, box.left, box.bottom - 16); }
});
document.addEventListener("focusout", () => { tip.hidden = true; });
document.addEventListener("scroll", () => { tip.hidden = true; }, true);

function sortBy(head) {
  const table = head.closest("table"), column = head.cellIndex, body = table.tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const keyed = [...body.rows].map((row, place) => {
    const cell = row.cells[column];
    const number = cell.dataset.v === undefined ? NaN : Number(cell.dataset.v);
    return { row, place, number, text: cell.textContent };
  });
  keyed.sort((a, b) => {
    const empty = (a.text === "–") - (b.text === "–"); // what is missing stays last
    if (empty) return empty;
    const order = Number.isNaN(a.number) || Number.isNaN(b.number)
      ? a.text.localeCompare(b.text, "en", { numeric: true }) : a.number - b.number;
    return (down ? -order : order) || a.place - b.place;
  });
  keyed.forEach(({ row }) => body.append(row));
}
document.querySelectorAll("th button").forEach((button) => {
  button.addEventListener("click", () => sortBy(button.closest("th")));
});

const themes = ["auto", "light", "dark"], theme = document.getElementById("theme");
theme.addEventListener("click", () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  theme.textContent = `theme: ${next}`;
});
