// The details of one cell, in a dialog at the side; the page's address then links to the cell.
let shownCell = "";
let openedFrom = null;

function neighbours(cell) {
  const bad = CELLS.flat().filter((one) => one && isBad(one) && !isOwed(one));
  const at = bad.findIndex((one) => one.row === cell.row && one.subject === cell.subject);
  if (at < 0) return { before: null, after: bad[0] || null, text: bad.length ? `${bad.length} rejected` : "" };
  return { before: bad[at - 1] || null, after: bad[at + 1] || null, text: `rejected ${at + 1} of ${bad.length}` };
}

function section(title, ...content) {
  const given = content.flat().filter((one) => one !== null && one !== "");
  return given.length ? el("section", {}, el("h3", {}, title), given) : null;
}

function table(head, rows) {
  return el("div", { class: "scroll" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((one) => el("td", {}, one)))))));
}

const textOf = (value) => (value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
const logged = (value) => (typeof value === "number" ? number(value) : textOf(value));

function facts(values) {
  const entries = Object.entries(values || {}).filter(([, value]) => value !== null && value !== undefined);
  return entries.length ? el("dl", { class: "facts" }, entries.map(([name, value]) => [el("dt", {}, name), el("dd", {}, textOf(value))])) : null;
}

function code(text, label) {
  return el("div", { class: "code" }, el("pre", { tabindex: "0", "aria-label": label }, text), copyButton(text));
}

function headOf(cell, around) {
  const step = (to, sign, label) => el("button", { type: "button", disabled: !to, "aria-label": label, title: label, onclick: () => openCell(to.row, to.subject) }, sign);
  return el("header", { class: "detail-head" },
    el("div", { class: "title" }, chip(cell.verdict, cellClass(cell)),
      el("div", {}, el("h2", { id: "detail-title", tabindex: "-1" }, CASES[cell.row].name), el("p", { class: "mono" }, SUBJECTS[cell.subject].name))),
    el("div", { class: "steps" }, el("span", { class: "muted" }, around.text),
      step(around.before, "←", "Previous rejected cell"), step(around.after, "→", "Next rejected cell"),
      el("button", { type: "button", class: "close", "aria-label": "Close", title: "Close (Esc)", onclick: closeCell }, "✕")));
}

function verdictLine(cell, record) {
  const parts = [el("b", { class: `word v-${cell.verdict}` }, cell.verdict), record.class ? `, ${record.class}` : "", record.uncalibrated ? ", uncalibrated" : ""];
  if (cell.budget) parts.push(" · budget used ", el("b", {}, cell.budget));
  parts.push(cell.rejected ? " · rejected" : cell.known ? " · accepted as a known deviation" : "");
  return el("p", { class: "verdict-line" }, parts.filter((one) => one !== ""), el("span", { class: "muted" }, MEANINGS[cell.verdict]));
}

function explanationOf(record) {
  const { explanation, advice, ties } = record;
  if (!explanation) return null;
  const used = explanation.budget === undefined ? null : el("p", { class: "muted" }, `Compared with an oracle that does the same, the result is right: budget used ${typeof explanation.budget === "number" ? short(explanation.budget) : explanation.budget}.`);
  return el("div", { class: "callout" }, el("p", {}, "Explanation: it ", el("strong", {}, explanation.sentence), "."),
    advice ? el("p", {}, el("span", { class: "fix" }, advice)) : null,
    used, el("p", { class: "muted mono" }, `${explanation.decision}: found ${explanation.name}${explanation.declared ? `, expected ${explanation.declared}` : ""}`),
    (ties || []).length ? el("p", {}, "Ties, which these cases do not distinguish: ", el("span", { class: "mono" }, ties.join("; "))) : null);
}

function knownOf({ known }) {
  if (!known) return null;
  return el("div", { class: "callout known" }, el("p", {}, el("b", {}, "Known deviation: "), known.reason),
    el("p", {}, known.link ? linked(known.link) : null, known.entry ? el("span", { class: "muted mono" }, ` ${known.entry}`) : null));
}

function outputsOf({ outputs, reason, dropped_outputs: dropped }) {
  if (!outputs || !outputs.length) return null;
  const head = ["Output", "Verdict", "Budget", "Max error", "Worst at", "Bound there", "Expected", "Actual", "rms", "Beyond", "Coverage", "Not judged", "Unspecified"];
  const rows = outputs.map((one) => [el("b", {}, one.output), [one.verdict, one.class].filter(Boolean).join(", "), logged(one.budget), logged(one.max_error),
    one.at ? `[${one.at.join(", ")}]` : "", logged(one.bound), logged(one.expected), logged(one.actual), logged(one.rms),
    one.elements === undefined ? "" : `${one.beyond || 0} of ${one.elements}`, logged(one.coverage), logged(one.not_judged), logged(one.unspecified)]);
  const kept = head.map((_, column) => rows.some((row) => row[column] !== ""));
  const note = (one) => (one.message.startsWith(`${one.output}:`) ? one.message : `${one.output}: ${one.message}`);
  const notes = outputs.filter((one) => one.message && !(reason || "").includes(one.message)).map((one) => el("p", { class: "muted" }, note(one)));
  const impossible = outputs.filter((one) => one.beyond_worst).map((one) => el("p", { class: "muted" }, `${one.output}: the error is beyond the worst case that the declared arithmetic allows.`));
  return section("Outputs", table(head.filter((_, column) => kept[column]), rows.map((row) => row.filter((_, column) => kept[column]))), notes, impossible,
    (dropped || []).length ? el("p", { class: "muted" }, `Requested, but not returned by this subject: ${dropped.join(", ")}`) : null);
}

async function drawMaps(holder, cell, record) {
  const bytes = await unpacked(`cell-${cell.row}-${cell.subject}`);
  if (!holder.isConnected) return;
  if (!bytes) { holder.replaceChildren(el("p", { class: "muted" }, record.tensors_note || "")); return; }
  const { operator } = CASES[cell.row];
  const outputs = readBlob(bytes);
  const startOf = (name) => ((record.outputs || []).find((one) => one.output === name) || {}).at;
  const draw = (data) => holder.lastChild.replaceChildren(data.shape ? new Maps(data, operator, startOf(data.name)).node : aloneMaps(data, operator));
  const tabs = outputs.length > 1 ? el("div", { class: "tabs", role: "group", "aria-label": "Output" }, outputs.map((data) =>
    el("button", { type: "button", "aria-pressed": "false", onclick: (event) => { press(event.target); draw(data); } }, data.name))) : null;
  holder.replaceChildren(...[tabs, el("div", {})].filter(Boolean));
  const failing = outputs.find((data) => ((record.outputs || []).find((one) => one.output === data.name) || {}).verdict === "fail") || outputs[0];
  if (tabs) press(tabs.children[outputs.indexOf(failing)]);
  if (failing) draw(failing);
}

function press(button) {
  for (const one of button.parentNode.children) one.setAttribute("aria-pressed", String(one === button));
}

function mapsOf(cell, record) {
  if (!record.tensors) return null;
  const holder = el("div", { class: "maps-holder" }, el("p", { class: "muted" }, "Unpacking…"));
  holder.ready = () => drawMaps(holder, cell, record).catch((fault) => holder.replaceChildren(el("p", { class: "muted" }, `The arrays cannot be shown: ${fault.message}`)));
  return section("Expected, actual, difference", holder);
}

function routeOf({ route }) {
  if (!route || !route.length) return null;
  return section("Argument that receives each mask", table(["Masks", "Argument", "Element type", "Axes", ""], route.map((one) => [
    (one.kinds || []).join(" + "), el("code", {}, one.slot || ""), one.element || "", (one.axes || []).join(" "), one.verbatim ? "verbatim" : ""])));
}

function declaredOf({ declared, differs_from_canonical: differs }) {
  if (!declared) return null;
  const dialect = (declared.dialect || []).map((one) => el("li", {}, el("b", { class: "mono" }, `${one.decision}: ${one.name}`), " ", one.source ? linked(one.source) : el("span", { class: "muted" }, "no source")));
  return section("Declared", dialect.length ? el("ul", { class: "declared" }, dialect) : el("p", {}, "Every decision is canonical."),
    differs === undefined ? null : el("p", { class: "muted" }, differs ? "For this case the declared and the canonical behaviour give different replies." : "For this case the declared and the canonical behaviour give the same reply."),
    declared.profile ? el("details", {}, el("summary", {}, "Arithmetic profile"), facts(declared.profile)) : null,
    declared.evidence ? el("p", {}, el("span", { class: "muted" }, "Evidence for the profile: "), declared.evidence) : null);
}

function errorOf({ error }) {
  if (!error) return null;
  return section("Error", el("p", {}, el("b", {}, error.type || ""), error.message ? `: ${error.message}` : ""),
    error.traceback ? code(error.traceback, "Traceback") : null);
}

function evidenceOf(record) {
  const other = { evidence: record.evidence, seconds: record.seconds, digests: record.digests };
  const lists = Object.entries(other).filter(([, value]) => value && Object.keys(value).length).map(([name, value]) =>
    [el("h4", {}, name), Array.isArray(value) ? el("p", {}, value.join(", ")) : facts(value)]);
  return lists.length ? el("details", { class: "evidence" }, el("summary", {}, "Evidence, timing, digests"), lists) : null;
}

function againOf({ repeats, invariants, pattern }) {
  const times = repeats && [repeats.again && `${repeats.again} times in the same worker`, repeats.alone && "alone in a new one"].filter(Boolean).join(", ");
  const outcomes = { same: "the same reply", nondeterministic: "nondeterministic", order_dependent: "order dependent" };
  const read = pattern && (pattern.not_read ? `not read: ${pattern.not_read}` : `read in ${plural(pattern.calls, "call")}, ${pattern.beyond} of ${pattern.elements} weights beyond the bound`);
  return section("Second look",
    repeats ? el("p", {}, `Repeated ${times}: `, el("b", {}, outcomes[repeats.found] || repeats.found), repeats.reason ? `. ${repeats.reason}` : "") : null,
    read ? el("p", {}, `Attention weights, measured with one-hot values: ${read}`) : null,
    (invariants || []).length ? table(["Relation to a changed call", "", ""], invariants.map((one) => [el("code", {}, one.name), one.found === "broken" ? el("b", { class: "v-fail" }, "broken") : one.found, one.sentence ? `it ${one.sentence}; ${one.where}` : ""])) : null);
}

function caseOf(cell, about) {
  const one = CASES[cell.row];
  return section("Case", one.summary ? el("p", {}, one.summary) : null,
    el("p", { class: "muted mono" }, [one.operator, one.dtype, about.source, ...(about.tags || []).map((tag) => `#${tag}`)].filter(Boolean).join(" · ")),
    about.yaml ? code(about.yaml, "YAML of the case") : null);
}

function bodyOf(cell, record, about) {
  const maps = mapsOf(cell, record);
  const parts = [verdictLine(cell, record), explanationOf(record), knownOf(record), record.reason ? el("p", { class: "reason" }, record.reason) : null,
    record.rerun ? section("Rerun this cell alone", code(record.rerun, "Command")) : null,
    errorOf(record), maps, outputsOf(record), againOf(record), el("div", { class: "two" }, routeOf(record), declaredOf(record)), caseOf(cell, about), evidenceOf(record)];
  const body = el("div", { class: "detail-body", tabindex: "-1" }, parts.filter(Boolean));
  body.ready = () => { const holder = body.querySelector(".maps-holder"); if (holder) holder.ready(); };
  return body;
}

async function drawDetail() {
  const dialog = $("detail");
  const [row, column] = [CASE_ROW.get(state.cell), SUBJECT_COLUMN.get(state.of)];
  const key = `${row} ${column}`;
  const cell = row !== undefined && column !== undefined ? CELLS[row][column] : null;
  if (!cell) { if (dialog.open) dialog.close(); shownCell = ""; return; }
  if (shownCell === key && dialog.open) return;
  shownCell = key;
  const { case: about, cells } = await chunkOf(row);
  if (shownCell !== key) return;
  const body = bodyOf(cell, cells[column] || {}, about);
  dialog.replaceChildren(headOf(cell, neighbours(cell)), body);
  if (!dialog.open) { openedFrom = document.activeElement; dialog.showModal(); }
  $("detail-title").focus();
  body.ready();
}

function wireDetail() {
  const dialog = $("detail");
  dialog.addEventListener("cancel", (event) => { event.preventDefault(); closeCell(); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) closeCell(); });
  dialog.addEventListener("close", () => { if (openedFrom && openedFrom.isConnected) openedFrom.focus({ preventScroll: true }); });
  DARK.addEventListener("change", () => { if (dialog.open) { shownCell = ""; drawDetail(); } });
}
