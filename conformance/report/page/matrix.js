// The matrix. Themes and suites can be folded; a folded row shows the gravest verdict below it, and "unsupported" only
// if there is no other verdict.
const openGroups = new Set();
const rowCache = new Map();
let columns = [];

const SUITES = (() => {
  const themes = new Map();
  CASES.forEach((one, row) => {
    const theme = themeOf(one);
    if (!themes.has(theme)) themes.set(theme, new Map());
    const suites = themes.get(theme);
    if (!suites.has(one.suite)) suites.set(one.suite, []);
    suites.get(one.suite).push(row);
  });
  return themes;
})();

const HAYSTACK = CASES.map((one) => `${one.name} ${one.summary}`.toLowerCase());

function cellMatches(cell, words) {
  if (state.v.length && !state.v.some((one) => (one === "rejected" ? isBad(cell) : kindOf(cell) === one))) return false;
  if (!words.length) return true;
  const text = `${HAYSTACK[cell.row]} ${SUBJECTS[cell.subject].name.toLowerCase()} ${cell.text.toLowerCase()}`;
  return words.every((word) => text.includes(word));
}

const rowMatches = (one) => (!state.theme || themeOf(one) === state.theme)
  && (!state.op || one.operator === state.op) && (!state.dtype || one.dtype === state.dtype);

// Subjects ordered by framework; if none is chosen, those with a verdict in the rows that match the filters.
function shownColumns() {
  const chosen = new Set(state.s);
  const lines = CELLS.filter((_, row) => rowMatches(CASES[row]));
  const shown = SUBJECTS.map((_, column) => column)
    .filter((column) => (chosen.size ? chosen.has(SUBJECTS[column].name) : lines.some((line) => line[column])));
  const order = [...new Set(SUBJECTS.map((one) => one.framework))];
  return shown.sort((a, b) => order.indexOf(SUBJECTS[a].framework) - order.indexOf(SUBJECTS[b].framework) || a - b);
}

// row -> set of matching columns; rows without a match are omitted
function matching() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Map();
  CASES.forEach((one, row) => {
    if (!rowMatches(one)) return;
    const hits = new Set(columns.filter((column) => CELLS[row][column] && cellMatches(CELLS[row][column], words)));
    if (hits.size) found.set(row, hits);
  });
  return found;
}

function gravest(rows, column, found) {
  const cells = rows.filter((row) => found.get(row).has(column)).map((row) => CELLS[row][column]);
  if (!cells.length) return null;
  const weight = (cell) => (cell.verdict === "unsupported" ? -100 : cell.gravity) + (isBad(cell) ? 100 : 0);
  const top = cells.reduce((worst, cell) => (weight(cell) > weight(worst) ? cell : worst));
  return { cell: top, number: cells.filter((cell) => cell.verdict === top.verdict && isBad(cell) === isBad(top)).length };
}

function drawHead() {
  const groups = [];
  for (const column of columns) {
    const { framework } = SUBJECTS[column];
    if (groups.length && groups[groups.length - 1].framework === framework) groups[groups.length - 1].span += 1;
    else groups.push({ framework, span: 1 });
  }
  const top = el("tr", { class: "frameworks" }, el("th", { class: "corner" }, el("span", { class: "sr" }, "Framework")),
    groups.map((group) => el("th", { colspan: group.span, scope: "colgroup" }, el("span", {}, group.framework))));
  const names = el("tr", { class: "names" }, el("th", { class: "corner", scope: "col" }, "Case"),
    columns.map((column) => el("th", { scope: "col", title: SUBJECTS[column].name, class: SUBJECTS[column].counted ? "" : "uncounted" },
      columnName(SUBJECTS[column].name))));
  $("grid").tHead.replaceChildren(top, names);
  $("grid").style.width = `calc(var(--first) + ${columns.length * 44}px)`;
  $("grid").querySelector("colgroup").replaceChildren(el("col", { class: "first" }), ...columns.map(() => el("col", { class: "other" })));
}

// The variant, in brackets, follows the name of the adapter.
function columnName(name) {
  const at = name.indexOf("[");
  return at < 1 ? el("span", {}, name) : el("span", {}, name.slice(0, at), el("i", {}, name.slice(at)));
}

// The accessible name begins with the visible letters, so that users of voice control can say what they see.
function spoken(cell, number, text) {
  const mark = SYMBOLS[cell.verdict];
  return /[A-Z]/.test(mark) ? `${mark}${number}: ${text}` : text;
}

function bodyCell(row, column) {
  const cell = CELLS[row][column];
  if (!cell) return el("td", { class: "none" });
  const used = Math.min(10, Math.ceil(10 * Number(cell.budget.replace("<", ""))));
  const node = el("td", { class: `${cellClass(cell)} b${used > 0 ? used : 0}`, tabindex: "-1", "aria-label": spoken(cell, cell.budget, describe(cell)), role: "gridcell" },
    SYMBOLS[cell.verdict], el("small", {}, cell.budget));
  node.cell = cell;
  return node;
}

const labelOf = (one) => (one.name.startsWith(`${one.suite}/`) ? one.name.slice(one.suite.length + 1) : one.name);

// Wide enough for the longest label, within limits.
function firstColumn() {
  const longest = Math.max(24, ...CASES.map((one) => labelOf(one).length));
  return `min(${Math.min(560, 70 + Math.ceil(6.9 * longest))}px, 46vw)`;
}

function caseRow(row) {
  const key = `${row} ${columns.join()}`;
  if (rowCache.has(key)) return rowCache.get(key);
  const one = CASES[row];
  const label = labelOf(one);
  const [name] = label.split("[", 1);
  const parameters = label.slice(name.length);
  const head = el("th", { scope: "row", title: one.summary ? `${one.name}\n${one.summary}` : one.name },
    el("span", { class: "case-name" }, name), el("span", { class: "parameters" }, parameters));
  const node = el("tr", { class: "case" }, head, columns.map((column) => bodyCell(row, column)));
  rowCache.set(key, node);
  return node;
}

function groupRow(kind, name, rows, found, label) {
  const key = `${kind}:${name}`;
  const open = openGroups.has(key);
  const bad = rows.reduce((sum, row) => sum + [...found.get(row)].filter((column) => isBad(CELLS[row][column])).length, 0);
  const button = el("button", { type: "button", class: "fold", "aria-expanded": String(open), "data-group": key },
    el("span", { class: "arrow", "aria-hidden": "true" }, "▸"), label || name);
  const head = el("th", { scope: "rowgroup" }, button,
    el("span", { class: "muted" }, ` ${rows.length}`), bad ? el("span", { class: "bad-count" }, `${bad} rejected`) : null);
  return el("tr", { class: kind }, head, columns.map((column) => groupCell(rows, column, found, open)));
}

function groupCell(rows, column, found, open) {
  const top = gravest(rows, column, found);
  if (!top) return el("td", { class: "none" });
  const text = `${plural(top.number, "case")} ${top.cell.verdict} on ${SUBJECTS[column].name}`;
  return el("td", { class: `sum ${cellClass(top.cell)}${open ? " opened" : ""}`, title: text, "aria-label": spoken(top.cell, top.number, text) },
    SYMBOLS[top.cell.verdict], el("small", {}, String(top.number)));
}

function drawBody(found) {
  const rows = [];
  for (const [theme, suites] of SUITES) {
    const below = [...suites.values()].flat().filter((row) => found.has(row));
    if (!below.length) continue;
    rows.push(groupRow("theme", theme, below, found, suites.size === 1 ? [...suites.keys()][0] : theme));
    if (openGroups.has(`theme:${theme}`)) for (const [suite, all] of suites) drawSuite(rows, suite, all.filter((row) => found.has(row)), found);
  }
  $("grid").tBodies[0].replaceChildren(...rows);
  if (!rows.length) $("grid").tBodies[0].append(el("tr", {}, el("th", { class: "empty", colspan: columns.length + 1 }, "No verdict matches these filters.")));
  const first = $("grid").querySelector("td[tabindex]");
  if (first) first.tabIndex = 0;
}

// The only suite of a theme gets no row of its own.
function drawSuite(rows, suite, below, found) {
  if (!below.length) return;
  if (SUITES.get(themeOf(CASES[below[0]])).size > 1) {
    rows.push(groupRow("suite", suite, below, found));
    if (!openGroups.has(`suite:${suite}`)) return;
  }
  for (const row of below) {
    const node = caseRow(row);
    for (const td of node.cells) if (td.cell) td.classList.toggle("dim", !found.get(row).has(td.cell.subject));
    rows.push(node);
  }
}

function drawMatrix() {
  const before = columns.join();
  columns = shownColumns();
  if (before !== columns.join()) { rowCache.clear(); drawHead(); }
  const found = matching();
  drawBody(found);
  let verdicts = 0;
  for (const hits of found.values()) verdicts += hits.size;
  const dense = columns.filter((column) => !SUBJECTS[column].counted).length;
  const judged = [[columns.length - dense, "subject"], [dense, "dense form"]].filter(([number]) => number);
  $("shown").textContent = `${plural(verdicts, "verdict")} in ${plural(found.size, "case")} on ${judged.map((each) => plural(...each)).join(" and ")}`;
}

// Small runs start unfolded; in large runs only suites with a rejected cell do, while they fit on one or two screens.
function openFirst() {
  const rejected = (row) => CELLS[row].some((cell) => cell && isBad(cell));
  let room = CASES.length <= 60 ? CASES.length : 40;
  for (const [theme, suites] of SUITES) {
    if (suites.size > 1 && SUITES.size <= 16) openGroups.add(`theme:${theme}`);
    for (const [, rows] of suites) {
      if (rows.length > room || (CASES.length > 60 && !rows.some(rejected))) continue;
      openAround(rows[0]);
      room -= rows.length;
    }
  }
}

function setGroups(open) {
  openGroups.clear();
  if (open) CASES.forEach((_, row) => openAround(row));
  drawMatrix();
}

function openAround(row) {
  openGroups.add(`theme:${themeOf(CASES[row])}`);
  openGroups.add(`suite:${CASES[row].suite}`);
}

// Unfold what a filter finds, unless it is too much to read.
function openFound() {
  if (!state.q && !state.v.length && !state.dtype && !state.theme) return;
  const found = matching();
  if (found.size <= 60) for (const row of found.keys()) openAround(row);
}

function fold(key) {
  if (openGroups.has(key)) openGroups.delete(key); else openGroups.add(key);
  drawMatrix();
  const again = [...$("grid").querySelectorAll("button.fold")].find((button) => button.dataset.group === key);
  if (again) again.focus({ preventScroll: true });
}

function moveInGrid(event) {
  const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  const from = event.target.closest("td[tabindex]");
  if (!from) return;
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); openCell(from.cell.row, from.cell.subject); return; }
  if (!steps[event.key]) return;
  event.preventDefault();
  const [down, right] = steps[event.key];
  const to = nextCell(from, down, right);
  if (to) { from.tabIndex = -1; to.tabIndex = 0; to.focus(); }
}

function nextCell(from, down, right) {
  let [row, column] = [from.parentNode, from.cellIndex];
  for (;;) {
    column += right;
    if (down) row = down > 0 ? row.nextElementSibling : row.previousElementSibling;
    const node = row && row.cells[column];
    if (!node || column < 1) return null;
    if (node.cell) return node;
  }
}
