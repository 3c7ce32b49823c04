// The state of the page is stored in the address after the #, so that a view can be shared as a link.
const EMPTY = { q: "", theme: "", op: "", dtype: "", v: [], s: [], a: "", b: "", cell: "", of: "" };
let state = { ...EMPTY };
const listeners = [];

function parsed(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const next = { ...EMPTY };
  for (const name of ["q", "theme", "op", "dtype", "a", "b", "cell", "of"]) next[name] = fields.get(name) || "";
  next.v = fields.getAll("v").filter((one) => one === "rejected" || KINDS_OF_CELLS.includes(one));
  next.s = fields.getAll("s").filter((one) => SUBJECT_COLUMN.has(one));
  return next;
}

function address(values) {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (Array.isArray(value)) value.forEach((one) => fields.append(name, one));
    else if (value) fields.set(name, value);
  }
  const text = fields.toString();
  return text ? `#${text}` : "#";
}

// Opening and closing a cell adds a history entry, which Back undoes; filters only rewrite the address.
function update(changes) {
  const opens = "cell" in changes && (changes.cell !== state.cell || changes.of !== state.of);
  state = { ...state, ...changes };
  if (opens) history.pushState(null, "", address(state));
  else history.replaceState(null, "", address(state));
  listeners.forEach((listener) => listener(changes));
}

function follow(hash) {
  if (hash.length > 1 && !hash.includes("=")) return;
  state = parsed(hash);
  listeners.forEach((listener) => listener(state));
}

addEventListener("popstate", () => follow(location.hash));

const openCell = (row, column) => update({ cell: CASES[row].name, of: SUBJECTS[column].name });
const closeCell = () => update({ cell: "", of: "" });
