// Next to a finding: the expected and the effective attention pattern, at the position where they differ most.
class Pattern extends Maps {
  four() {
    const { got, want } = this.data;
    const top = Math.max(this.range(want), this.range(got));
    return [this.signed("Expected weights", want, top), this.signed("Measured weights", got, top)];
  }
}

function worstPosition({ budget }) {
  let worst = 0;
  budget.forEach((used, position) => { if (used > budget[worst]) worst = position; });
  return worst;
}

async function drawPicture(holder) {
  const [row, column] = [CASE_ROW.get(holder.dataset.case), SUBJECT_COLUMN.get(holder.dataset.of)];
  const bytes = await unpacked(`cell-${row}-${column}`);
  const data = bytes && readBlob(bytes).find((one) => one.name === "pattern" && one.shape);
  if (!data) return;
  const maps = new Pattern(data, CASES[row].operator, null);
  maps.cursor = worstPosition(data);
  maps.draw();
  const [batch, head] = maps.indexOf(maps.cursor);
  holder.replaceChildren(maps.maps, el("p", { class: "muted" }, `Batch element ${batch}, head ${head} of `, el("span", { class: "mono" }, holder.dataset.case)));
}

// A picture is drawn when it scrolls into view: a page can have many findings.
function wirePictures() {
  const seen = new IntersectionObserver((entries) => entries.filter((one) => one.isIntersecting).forEach(({ target }) => {
    seen.unobserve(target);
    drawPicture(target).catch((fault) => target.replaceChildren(el("p", { class: "muted" }, `The pattern cannot be shown: ${fault.message}`)));
  }));
  for (const holder of document.querySelectorAll(".picture")) seen.observe(holder);
  DARK.addEventListener("change", () => document.querySelectorAll(".picture canvas").forEach((one) => drawPicture(one.closest(".picture"))));
}
