// Two subjects side by side: the cases on which they disagree, and how.
const KINDS = {
  verdict: "verdict differs",
  dialect: "declared dialect differs",
  way: "fail in different ways",
  alone: "judged on one side only",
};
const shownKinds = new Set(["verdict", "dialect", "way"]);
const judged = (cell) => cell && !["unsupported", "inconclusive", "missing"].includes(cell.verdict);
const conforms = (cell) => cell.verdict === "pass" || cell.verdict === "dialect";

// null if both agree, or neither was judged
function disagreement(a, b) {
  if (!judged(a) && !judged(b)) return null;
  if (!judged(a) || !judged(b)) return "alone";
  if (conforms(a) && conforms(b)) return a.dialect === b.dialect ? null : "dialect";
  if (a.verdict !== b.verdict) return "verdict";
  return a.way === b.way ? null : "way";
}

// What one side does, in short: its declared dialect, how it fails, or why it was not judged.
function manner(cell) {
  if (!judged(cell)) return cell.text ? `${cell.verdict}: ${cell.text}` : cell.verdict;
  return conforms(cell) ? TEXTS[cell.dialect] || "canonical" : TEXTS[cell.way];
}

// Rows grouped by cause: polarity first, since it inverts every other result, then the most frequent causes.
function causesOf(found) {
  const causes = new Map();
  for (const one of found) {
    const name = `${manner(one.left)} → ${manner(one.right)}`;
    if (!causes.has(name)) causes.set(name, { name, rows: [] });
    causes.get(name).rows.push(one);
  }
  const later = (cause) => (/\bpolarity\b/.test(cause.name) ? 0 : 1);
  return [...causes.values()].sort((a, b) => later(a) - later(b) || b.rows.length - a.rows.length);
}

function compared(a, b) {
  const found = [];
  let both = 0;
  CELLS.forEach((line, row) => {
    const [left, right] = [line[a], line[b]];
    if (!left || !right) return;
    const kind = disagreement(left, right);
    if (judged(left) && judged(right)) both += 1;
    if (kind) found.push({ row, kind, left, right });
  });
  return { found, both };
}

function pairCell(cell) {
  const text = cell.verdict === "dialect" ? TEXTS[cell.dialect] || cell.text : cell.text;
  return el("td", {}, el("a", { href: address({ ...state, cell: CASES[cell.row].name, of: SUBJECTS[cell.subject].name }), "data-state": true, class: "pair-cell", title: describe(cell) },
    chip(cell.verdict, cellClass(cell)), el("span", {}, el("b", {}, cell.verdict, cell.budget ? ` ${cell.budget}` : ""), text ? el("small", {}, text) : null)));
}

function drawPair() {
  const [a, b] = [SUBJECT_COLUMN.get($("pair-a").value), SUBJECT_COLUMN.get($("pair-b").value)];
  if (a === undefined || b === undefined) return;
  const { found, both } = compared(a, b);
  const counts = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, found.filter((one) => one.kind === kind).length]));
  drawKinds(counts);
  const differ = found.length - counts.alone;
  $("pair-summary").textContent = a === b ? "Choose two different subjects."
    : both + counts.alone === 0 ? "They share no case: their operators differ."
      : `${plural(both, "case")} judged on both sides: they agree on ${both - differ}, disagree on ${differ}; ${counts.alone} more judged on one side only.`;
  const rows = found.filter((one) => shownKinds.has(one.kind));
  const head = el("tr", {}, ["Case", SUBJECTS[a].name, SUBJECTS[b].name, "Difference"].map((name) => el("th", { scope: "col" }, name)));
  $("pair-table").tHead.replaceChildren(...(rows.length ? [head] : []));
  $("pair-table").replaceChildren($("pair-table").tHead, ...causesOf(rows).map(drawCause));
}

function drawCause(cause) {
  return el("tbody", {},
    el("tr", { class: "cause" }, el("th", { colspan: "4", scope: "rowgroup" }, cause.name, " ", el("small", {}, plural(cause.rows.length, "case")))),
    ...cause.rows.map((one) => el("tr", {},
      el("th", { scope: "row" }, CASES[one.row].name), pairCell(one.left), pairCell(one.right), el("td", { class: "muted" }, KINDS[one.kind]))));
}

function drawKinds(counts) {
  $("pair-kinds").replaceChildren(el("legend", { class: "sr" }, "Kinds of disagreement"), ...Object.entries(KINDS).map(([kind, text]) =>
    el("button", { type: "button", class: "toggle", "data-kind": kind, "aria-pressed": String(shownKinds.has(kind)) }, text, " ", el("b", {}, String(counts[kind])))));
}

function firstPair() {
  if (INDEX.port) return [INDEX.port.from, INDEX.port.to];
  const real = SUBJECTS.map((_, column) => column).filter((column) => CELLS.some((line) => line[column]));
  let best = [real[0], real[1] === undefined ? real[0] : real[1]];
  let most = -1;
  for (const a of real.slice(0, 12)) for (const b of real.slice(0, 12)) {
    if (a >= b) continue;
    const number = compared(a, b).found.filter((one) => one.kind !== "alone").length;
    if (number > most) { most = number; best = [a, b]; }
  }
  return best.map((column) => SUBJECTS[column].name);
}

function wirePair() {
  const names = SUBJECTS.filter((_, column) => CELLS.some((line) => line[column])).map((one) => one.name);
  for (const id of ["pair-a", "pair-b"]) {
    setOptions($(id), names);
    $(id).addEventListener("change", () => update({ a: $("pair-a").value, b: $("pair-b").value }));
  }
  $("swap").addEventListener("click", () => update({ a: $("pair-b").value, b: $("pair-a").value }));
  $("pair-kinds").addEventListener("click", (event) => {
    const button = event.target.closest("[data-kind]");
    if (!button) return;
    const { kind } = button.dataset;
    if (shownKinds.has(kind)) shownKinds.delete(kind); else shownKinds.add(kind);
    drawPair();
    $("pair-kinds").querySelector(`[data-kind="${kind}"]`).focus();
  });
}

let fallback = null;
function showPair() {
  if (!SUBJECTS.length) return;
  if (!fallback) fallback = firstPair();
  $("pair-a").value = SUBJECT_COLUMN.has(state.a) ? state.a : fallback[0];
  $("pair-b").value = SUBJECT_COLUMN.has(state.b) ? state.b : fallback[1];
  drawPair();
}
