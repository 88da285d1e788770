// Tables that sort and filter. Rows that stand behind a table as data are made as they come into view.
const STEP = 150; // rows made at once
const SHORT = 24; // characters that stand on one line

class SortedTable {
  constructor(place) {
    this.place = place;
    this.heads = [...place.querySelectorAll("thead th, thead td")];
    this.body = place.querySelector("tbody");
    this.count = place.querySelector(".count");
    this.field = place.querySelector("input[type=search]");
    this.rows = this.read();
    this.shown = this.rows;
    this.sorted = null;
    this.drawn = this.body.rows.length;
    this.end = make("tr", "end");
    this.end.append(make("td"));
    this.eye = new IntersectionObserver(
      (seen) => seen.some((one) => one.isIntersecting) && this.draw(this.drawn + STEP),
      { root: place.querySelector(".scroll"), rootMargin: "400px" },
    );
    this.listen();
    this.draw(this.drawn);
    this.tell();
  }

  read() {
    const standing = [...this.body.rows].map((element) => ({
      element, cells: [...element.cells].map((cell) => cell.textContent), open: "open" in element.dataset, }));
    const data = this.place.querySelector(":scope > script");
    const behind = data ? dataOf(data) : [];
    return standing.concat(behind.map(([tone, open, ...cells]) => ({ tone, open: Boolean(open), cells })));
  }

  listen() {
    this.place.querySelector("thead").addEventListener("click", (event) => {
      const button = event.target.closest(".sort");
      if (button) this.sort(this.heads.indexOf(button.closest("th")));
    });
    this.field?.addEventListener("input", () => this.choose());
    this.place.querySelector(".export")?.addEventListener("click", () => this.save());
    const unfold = this.place.querySelector(".unfold");
    unfold?.addEventListener("click", () => {
      const on = this.place.classList.toggle("unfolded");
      unfold.setAttribute("aria-pressed", String(on));
      unfold.textContent = say(on ? "hide_open" : "show_open", { count: this.rows.filter((row) => row.open).length });
      this.choose();
    });
  }

  // Ascending, then descending, then as it was.
  sort(column) {
    const was = this.sorted?.column === column ? this.sorted.way : 0;
    const way = [1, -1, 0][[0, 1, -1].indexOf(was)];
    this.sorted = way ? { column, way } : null;
    this.heads.forEach((head, place) => {
      if (place === column && way) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.choose();
  }

  choose() {
    const wanted = (this.field?.value ?? "").trim().toLowerCase();
    const unfolded = this.place.classList.contains("unfolded");
    this.shown = this.rows.filter(
      (row) => (unfolded || !row.open) && (!wanted || row.cells.some((cell) => cell.toLowerCase().includes(wanted))));
    if (this.sorted) this.order();
    this.body.replaceChildren();
    this.drawn = 0;
    this.draw(STEP);
    this.tell();
  }

  order() {
    const { column, way } = this.sorted;
    const isNumber = this.heads[column].dataset.kind === "number";
    const key = (row) => (isNumber ? figure(row.cells[column]) : row.cells[column]);
    const keyed = this.shown.map((row) => [key(row), row]);
    const isLast = (value) => value === "" || value === "-" || Number.isNaN(value);
    keyed.sort(([one], [other]) => {
      if (isLast(one) || isLast(other)) return Number(isLast(one)) - Number(isLast(other));
      if (isNumber) return way * (one < other ? -1 : Number(one > other));
      return way * one.localeCompare(other, "en", { numeric: true });
    });
    this.shown = keyed.map(([, row]) => row);
  }

  draw(upTo) {
    this.eye.disconnect();
    this.end.remove();
    const fresh = document.createDocumentFragment();
    for (const row of this.shown.slice(this.drawn, upTo)) fresh.append((row.element ??= this.element(row)));
    this.body.append(fresh);
    this.drawn = Math.min(upTo, this.shown.length);
    if (this.drawn < this.shown.length) {
      this.body.append(this.end);
      this.eye.observe(this.end);
    }
  }

  element(row) {
    const line = make("tr", row.tone);
    if (row.open) line.dataset.open = "";
    row.cells.forEach((text, place) => {
      const kind = this.heads[place].dataset.kind ?? "";
      const cell = make("td", `${kind}${text.length <= SHORT ? " short" : ""}`);
      const parts = kind === "path" ? text.split(/(?<=\.)/) : [text];
      cell.append(...parts.flatMap((part, index) => (index ? [make("wbr"), part] : [part])));
      line.append(cell);
    });
    return line;
  }

  // All rows as a file: of the table's name, or that of the section around it.
  save() {
    const cells = this.heads.map((head) => head.textContent);
    const lines = [cells, ...this.rows.map((row) => row.cells)].map((line) => line.map(quoted).join(","));
    const link = make("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", lines.join("\r\n"), "\r\n"], { type: "text/csv" }));
    const section = this.place.closest("section[id]")?.id.replace(/^[a-z]+-(?:rung-\d+-)?/, "");
    link.download = `${[section, this.place.dataset.name].filter(Boolean).join("-") || "table"}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href));
  }

  tell() {
    const shown = this.shown.filter((row) => !row.open || this.place.classList.contains("unfolded")).length;
    const facts = { shown, count: this.rows.length };
    if (this.count) this.count.textContent = say(shown === facts.count ? "rows" : "rows_of", facts);
  }
}

// A field of CSV as RFC 4180 has it.
function quoted(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// The first number of a cell; what has none goes last.
function figure(text) {
  const found = text.replaceAll(",", "").match(/-?(?:inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?)/i);
  return found ? Number(found[0].replace(/inf/i, "Infinity")) : NaN;
}

window.tables = [];
whenShown((version) => tables.push(...[...version.querySelectorAll(".table")].map((place) => new SortedTable(place))));
addEventListener("beforeprint", () => tables.forEach((table) => table.draw(Infinity)));
