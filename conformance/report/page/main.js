// Connects controls to the state, and the state to what is drawn.
const FILTERS = ["q", "theme", "op", "dtype", "v", "s"];

function drawFilters() {
  for (const name of ["q", "theme", "op", "dtype"]) if ($(name).value !== state[name]) $(name).value = state[name];
  for (const button of $("verdicts").querySelectorAll("button")) button.setAttribute("aria-pressed", String(state.v.includes(button.dataset.verdict)));
  const chosen = new Set(state.s);
  for (const box of $("picks").querySelectorAll("input")) box.checked = chosen.has(box.value);
  $("picked").textContent = chosen.size ? `(${chosen.size})` : "(all)";
}

function verdictButton(verdict, number) {
  const label = verdict === "rejected" ? el("b", {}, "Rejected") : [chip(verdict), verdict];
  return el("button", { type: "button", class: "toggle", "data-verdict": verdict, "aria-pressed": "false", title: MEANINGS[verdict] || "not accepted by the gate, or missing" },
    label, " ", el("small", {}, number.toLocaleString("en")));
}

function wireVerdicts() {
  const all = CELLS.flat().filter(Boolean);
  const count = (kind) => all.filter((cell) => kindOf(cell) === kind).length;
  const used = KINDS_OF_CELLS.map((verdict) => [verdict, count(verdict)]).filter(([, number]) => number);
  const bad = all.filter(isBad).length;
  $("verdicts").append(...[...(bad ? [["rejected", bad]] : []), ...used].map(([verdict, number]) => verdictButton(verdict, number)));
  $("verdicts").addEventListener("click", (event) => {
    const button = event.target.closest("[data-verdict]");
    if (!button) return;
    const { verdict } = button.dataset;
    update({ v: state.v.includes(verdict) ? state.v.filter((one) => one !== verdict) : [...state.v, verdict] });
  });
}

function wireSubjects() {
  const frameworks = [...new Set(SUBJECTS.map((one) => one.framework))];
  for (const framework of frameworks) {
    $("picks").append(el("h4", {}, framework), ...SUBJECTS.filter((one) => one.framework === framework).map((one) =>
      el("label", {}, el("input", { type: "checkbox", value: one.name }), el("span", { class: "mono" }, one.name))));
  }
  $("picks").addEventListener("change", () => update({ s: [...$("picks").querySelectorAll("input:checked")].map((box) => box.value) }));
  document.addEventListener("click", (event) => { if (!event.target.closest("#pick")) $("pick").open = false; });
}

function wireFilters() {
  setOptions($("theme"), [...SUITES.keys()], "all themes");
  setOptions($("op"), [...new Set(CASES.map((one) => one.operator))].sort(), "all operators");
  setOptions($("dtype"), [...new Set(CASES.map((one) => one.dtype))].sort(), "all dtypes");
  for (const id of ["theme", "op", "dtype"]) $(id).addEventListener("change", () => update({ [id]: $(id).value }));
  let waiting = 0;
  $("q").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => update({ q: $("q").value.trim() }), 90); });
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("expand").addEventListener("click", () => setGroups(true));
  $("collapse").addEventListener("click", () => setGroups(false));
  $("reset").addEventListener("click", () => update({ q: "", theme: "", op: "", dtype: "", v: [], s: [] }));
}

function wireGrid() {
  const body = $("grid").tBodies[0];
  body.addEventListener("click", (event) => {
    const button = event.target.closest("button.fold");
    if (button) { fold(button.dataset.group); return; }
    const td = event.target.closest("td[tabindex]");
    if (td) { td.focus({ preventScroll: true }); openCell(td.cell.row, td.cell.subject); }
  });
  body.addEventListener("keydown", moveInGrid);
  body.addEventListener("mouseover", (event) => {
    const td = event.target.closest("td[tabindex]");
    if (td && !td.title) td.title = `${describe(td.cell)}${td.cell.text ? `\n${td.cell.text}` : ""}`;
  });
}

function goTo(id) {
  $(id).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
}

function wirePage() {
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : document.body;
    const link = target.closest("a[href^='#']");
    const show = target.closest("[data-show-subject]");
    if (show) { update({ ...EMPTY, a: state.a, b: state.b, s: [show.dataset.showSubject], v: "rejected" in show.dataset ? ["rejected"] : [] }); goTo("matrix"); }
    if (!link) return;
    event.preventDefault();
    if (!("state" in link.dataset)) { goTo(link.hash.slice(1)); return; }
    const { cell, of } = parsed(link.hash);
    update({ cell, of });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && !$("detail").open) { event.preventDefault(); $("q").focus(); }
  });
  const all = $("all-findings");
  if (all) all.addEventListener("click", () => { document.querySelector(".findings").classList.add("all"); all.remove(); });
}

function drawLegend() {
  const used = new Set(CELLS.flat().filter(Boolean).map((cell) => cell.verdict));
  $("legend").replaceChildren(...VERDICTS.filter((verdict) => used.has(verdict)).map((verdict) => el("span", {}, chip(verdict), ` ${verdict}: ${MEANINGS[verdict]}`)),
    el("span", {}, el("span", { class: "chip v-fail rejected", "aria-hidden": "true" }, SYMBOLS.fail), " filled: rejected by the gate"),
    el("span", {}, el("span", { class: "chip v-fail known-cell", "aria-hidden": "true" }, SYMBOLS.fail), " dotted: a known deviation"),
    el("span", {}, "The number is the budget used; at most 1 conforms. In folded rows the number counts cases."));
}

listeners.push((changes) => {
  if (FILTERS.some((name) => name in changes)) { drawFilters(); openFound(); drawMatrix(); }
  if ("a" in changes || "b" in changes) showPair();
  if ("cell" in changes) drawDetail();
});

wireVerdicts();
wireSubjects();
wireFilters();
wireGrid();
wireDetail();
wirePair();
wirePictures();
wirePage();
drawLegend();
$("grid").style.setProperty("--first", firstColumn());
openFirst();
drawHead();
follow(location.hash.includes("=") ? location.hash : "");
if (location.hash.length > 1 && !location.hash.includes("=") && $(location.hash.slice(1))) $(location.hash.slice(1)).scrollIntoView();
