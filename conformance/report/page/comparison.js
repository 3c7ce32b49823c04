// The changed cells: filters, a table, and a dialog with both sides of one cell.
const DATA = JSON.parse($("index").textContent);
const CHANGES = DATA.groups.flatMap((group, at) => group.cells.map((cell) => ({ ...cell, group, at })));
const STEP = 200;
const state = { kinds: new Set(), subject: "", text: "", group: -1, limit: STEP };
const titleOf = (kind) => DATA.titles[kind];

function verdictChip(side) {
  const verdict = side ? side.verdict : "missing";
  return el("span", { class: `chip v-${verdict}`, title: side ? verdict : "absent" }, DATA.symbols[verdict]);
}

function turn(change) {
  return el("span", { class: "turn" }, verdictChip(change.base), el("span", { class: "arrow" }, "→"), verdictChip(change.candidate));
}

function kindTag(group) {
  return el("span", { class: `kind ${group.kind} ${group.rejected ? "rejected" : ""}` }, titleOf(group.kind));
}

function matching() {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  return CHANGES.filter((change) => {
    if (state.kinds.size && !state.kinds.has(change.group.kind)) return false;
    if (state.subject && change.subject !== state.subject) return false;
    if (state.group >= 0 && change.at !== state.group) return false;
    const text = `${change.case} ${change.subject} ${change.group.sentence}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

function rowOf(change) {
  const open = el("button", { type: "button", class: "link mono" }, change.case);
  const row = el("tr", { "data-cell": true },
    el("td", null, kindTag(change.group)),
    el("td", { class: "case" }, open),
    el("td", { class: "mono" }, change.subject),
    el("td", null, turn(change)));
  row.addEventListener("click", () => openChange(change, open));
  return row;
}

function drawTable() {
  const found = matching();
  $("cells").replaceChildren(...found.slice(0, state.limit).map(rowOf));
  $("shown").textContent = `${plural(found.length, "changed cell")} of ${CHANGES.length.toLocaleString("en")}`
    + (state.group >= 0 ? `, one group: ${DATA.groups[state.group].sentence}` : "");
  $("more").hidden = found.length <= state.limit;
  $("empty").hidden = found.length > 0;
}

function redraw() {
  state.limit = STEP;
  for (const button of document.querySelectorAll("[data-kind]")) button.setAttribute("aria-pressed", String(state.kinds.has(button.dataset.kind)));
  $("by-subject").value = state.subject;
  $("by-text").value = state.text;
  drawTable();
}

function budgetText(budget) {
  if (typeof budget !== "number") return String(budget);
  return budget > 0 && budget < 0.005 ? "<0.01" : budget < 10 ? budget.toFixed(2) : budget.toPrecision(2);
}

function sideOf(name, side, about, versions) {
  const facts = el("dl", { class: "facts" });
  const add = (term, value) => { if (value) facts.append(el("dt", null, term), el("dd", null, value)); };
  if (side) {
    add("verdict", side.class ? `${side.verdict}, ${side.class}` : side.verdict);
    add("budget used", side.budget === undefined ? "" : budgetText(side.budget));
    add("explained by", (side.ways || []).join(", "));
    add("declared", Object.entries(side.declared || {}).map(([decision, way]) => `${decision}=${way}`).join(", "));
    add("known", side.known);
    add("reason", side.text);
  } else add("verdict", "absent");
  add("versions", Object.entries(versions || {}).map(([name_, version]) => `${name_} ${version}`).join(", "));
  const body = el("section", { class: "side" }, el("h3", null, name), about.text ? el("p", null, `It ${about.text}.`) : null, facts);
  if (side && side.rerun) body.append(el("h4", null, "Rerun"), el("div", { class: "code" }, el("pre", null, side.rerun), copyButton(side.rerun)));
  return body;
}

let openedFrom = null;
function openChange(change, from) {
  const { group } = change;
  const close = el("button", { type: "button", "aria-label": "Close", onclick: () => $("detail").close() }, "✕");
  const title = el("h2", { id: "detail-title", tabindex: "-1" }, change.case);
  const head = el("header", { class: "detail-head" },
    el("div", { class: "title" }, turn(change), el("div", null, title, el("p", null, change.subject))),
    el("div", { class: "steps" }, close));
  const body = el("div", { class: "detail-body" },
    el("div", { class: "callout" }, el("p", null, kindTag(group), ` ${group.meaning}`), el("p", null, el("strong", null, group.sentence))),
    change.source ? el("p", { class: "reason muted" }, `case: ${change.source}`) : null,
    el("div", { class: "two" },
      sideOf("Base", change.base, group.base, DATA.versions.base[change.subject]),
      sideOf("Candidate", change.candidate, group.candidate, DATA.versions.candidate[change.subject])));
  openedFrom = from;
  $("detail").replaceChildren(head, body);
  $("detail").showModal();
  title.focus();
}

function listen() {
  for (const button of document.querySelectorAll("[data-kind]")) {
    button.addEventListener("click", () => {
      if (!state.kinds.delete(button.dataset.kind)) state.kinds.add(button.dataset.kind);
      redraw();
    });
  }
  for (const button of document.querySelectorAll("[data-group]")) {
    button.addEventListener("click", () => {
      Object.assign(state, { kinds: new Set(), subject: "", text: "", group: Number(button.dataset.group) });
      redraw();
      $("changes").scrollIntoView();
    });
  }
  $("by-subject").addEventListener("change", (event) => { state.subject = event.target.value; redraw(); });
  $("by-text").addEventListener("input", (event) => { state.text = event.target.value; redraw(); });
  $("reset").addEventListener("click", () => { Object.assign(state, { kinds: new Set(), subject: "", text: "", group: -1 }); redraw(); });
  $("more").addEventListener("click", () => { state.limit += STEP; drawTable(); });
  $("detail").addEventListener("click", (event) => { if (event.target === $("detail")) $("detail").close(); });
  $("detail").addEventListener("close", () => { if (openedFrom && openedFrom.isConnected) openedFrom.focus({ preventScroll: true }); });
}

setOptions($("by-subject"), [...new Set(CHANGES.map((change) => change.subject))].sort(), "All subjects");
listen();
redraw();
