// The index of cells that the page holds in memory.
const INDEX = JSON.parse($("index").textContent);
const { subjects: SUBJECTS, cases: CASES, verdicts: VERDICTS, symbols: SYMBOLS, meanings: MEANINGS, texts: TEXTS } = INDEX;
const KINDS_OF_CELLS = Object.keys(SYMBOLS);
const REJECTED = 1;
const KNOWN = 2;

// A cell as an object, from its row of numbers in the index.
function cellOf([subject, verdict, budget, marks, text, way, dialect], row) {
  return {
    row, subject, budget,
    verdict: VERDICTS[verdict], gravity: verdict,
    rejected: (marks & REJECTED) !== 0, known: (marks & KNOWN) !== 0,
    text: TEXTS[text], way, dialect,
  };
}

const CELLS = INDEX.cells.map((cells, row) => {
  const line = new Array(SUBJECTS.length).fill(null);
  for (const cell of cells) line[cell[0]] = cellOf(cell, row);
  return line;
});
const CASE_ROW = new Map(CASES.map((one, row) => [one.name, row]));
const SUBJECT_COLUMN = new Map(SUBJECTS.map((one, column) => [one.name, column]));
const themeOf = (one) => one.suite.split("/", 1)[0];
const isOwed = (cell) => cell !== null && cell.verdict === "missing";
const kindOf = (cell) => (cell.known ? "known" : cell.verdict);
const isBad = (cell) => cell.rejected || isOwed(cell);

function chip(verdict, extra) {
  return el("span", { class: `chip v-${verdict} ${extra || ""}`, "aria-hidden": "true" }, SYMBOLS[verdict]);
}

function cellClass(cell) {
  return `v-${cell.verdict}${cell.rejected ? " rejected" : ""}${cell.known ? " known-cell" : ""}`;
}

// The text for screen readers and tooltips.
function describe(cell) {
  const parts = [cell.verdict];
  if (cell.rejected) parts.push("rejected");
  if (cell.known) parts.push("known deviation");
  if (cell.budget) parts.push(`budget ${cell.budget}`);
  return `${parts.join(", ")}: ${CASES[cell.row].name} on ${SUBJECTS[cell.subject].name}`;
}

// Compressed data stays in the page as text until it is needed.
let packedText = "";
async function unpacked(id) {
  if (!(id in INDEX.places)) return null;
  packedText = packedText || $("packed").textContent;
  const [from, length] = INDEX.places[id];
  const letters = atob(packedText.slice(from, from + length));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const chunkCache = new Map();
async function chunkOf(row) {
  if (!chunkCache.has(row)) {
    chunkCache.set(row, unpacked(`case-${row}`).then((bytes) => JSON.parse(new TextDecoder().decode(bytes))));
  }
  return chunkCache.get(row);
}
