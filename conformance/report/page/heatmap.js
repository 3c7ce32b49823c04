// Maps of one output, side by side: expected, actual, error and budget, with one shared cursor.

// The numbers of a plane; their bytes were grouped by significance before compression.
function plane(bytes, from, { type, length }) {
  const size = Number(type.slice(1));
  const ordered = new Uint8Array(length * size);
  for (let part = 0; part < size; part += 1) {
    const start = from + part * length;
    for (let position = 0; position < length; position += 1) ordered[position * size + part] = bytes[start + position];
  }
  const kind = { f4: Float32Array, f8: Float64Array, u4: Uint32Array }[type];
  return new kind(ordered.buffer);
}

function readBlob(bytes) {
  const size = new DataView(bytes.buffer).getUint32(0, true);
  let from = 4 + size;
  const next = (entry) => { const numbers = plane(bytes, from, entry); from += numbers.byteLength; return numbers; };
  return JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))).map((entry) => (entry.alone ? readAlone(entry, next) : readPair(entry, next)));
}

function readAlone({ name, alone }, next) {
  const side = (entry) => entry && { shape: entry.shape, numbers: Float64Array.from(next(entry)) };
  const want = side(alone.want);
  return { name, want, got: side(alone.got) };
}

function readPair(entry, next) {
  const got = Float64Array.from(next(entry.got));
  const error = Float64Array.from(next(entry.error));
  const [nonfinite, nonfiniteWant] = [next(entry.odd), next(entry.odd_want)];
  const tolerance = entry.tolerance ? Float64Array.from(next(entry.tolerance)) : null;
  const want = got.map((value, position) => value - error[position]);
  nonfinite.forEach((position, index) => { want[position] = nonfiniteWant[index]; error[position] = got[position] - nonfiniteWant[index]; });
  const budget = tolerance && got.map((_, position) => budgetAt(got[position], want[position], error[position], tolerance[position]));
  return { name: entry.name, shape: entry.shape, got, want, error, tolerance, budget };
}

// NaN means "not judged".
function budgetAt(got, want, error, tolerance) {
  if (tolerance === Infinity || Number.isNaN(tolerance)) return NaN;
  if (Object.is(got, want) || got === want) return 0;
  if (!Number.isFinite(error)) return Infinity;
  return Math.abs(error) / tolerance;
}

const AXES = {
  output: { sdpa: ["batch", "head", "query", "feature"], mha: ["batch", "query", "feature"] },
  weights: { any: ["batch", "head", "query", "key"] },
  weights_mean: { any: ["batch", "query", "key"] },
  pattern: { any: ["batch", "head", "query", "key"] },
};

function axesOf(name, operator, rank) {
  const known = AXES[name] && (AXES[name][operator] || AXES[name].any);
  if (known && known.length === rank) return known;
  return Array.from({ length: rank }, (_, axis) => `axis ${axis}`);
}

const MIN_PIXELS = 66; // on each side, so that the axis name fits between its ticks

// One canvas with ticks and axis names.
class HeatMap {
  constructor(title, rows, columns, axes, colourAt, signAt) {
    Object.assign(this, { rows, columns, colourAt, signAt });
    const size = Math.max(1, Math.min(22, Math.floor(Math.min(232 / columns, 240 / rows))));
    this.width = Math.max(size, Math.ceil(MIN_PIXELS / columns));
    this.height = Math.max(size, Math.ceil(MIN_PIXELS / rows));
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `${title}, ${rows} by ${columns}; arrow keys move the cursor` });
    this.mark = el("div", { class: "mark", hidden: true });
    this.legend = el("div", { class: "scale" });
    const [vertical, horizontal] = axes;
    this.node = el("figure", { class: "map" }, el("figcaption", {}, title),
      el("div", { class: "frame" },
        el("div", { class: "axis-y" }, el("span", {}, "0"), el("b", {}, vertical), el("span", {}, rows > 1 ? String(rows - 1) : "")),
        el("div", { class: "field" }, this.canvas, this.mark),
        el("div", { class: "axis-x" }, el("span", {}, "0"), el("b", {}, horizontal), el("span", {}, columns > 1 ? String(columns - 1) : ""))),
      this.legend);
  }

  draw() {
    const { rows, columns, width, height, canvas } = this;
    const ratio = Math.max(1, Math.round(devicePixelRatio || 1));
    canvas.width = columns * width * ratio;
    canvas.height = rows * height * ratio;
    canvas.style.width = `${columns * width}px`;
    canvas.style.height = `${rows * height}px`;
    const ink = canvas.getContext("2d");
    ink.imageSmoothingEnabled = false;
    ink.drawImage(this.pixels(), 0, 0, canvas.width, canvas.height);
    ink.scale(ratio, ratio);
    if (Math.min(width, height) >= 8) this.drawSigns(ink);
  }

  pixels() {
    const { rows, columns } = this;
    const small = el("canvas", { width: columns, height: rows });
    const ink = small.getContext("2d");
    const image = ink.createImageData(columns, rows);
    for (let position = 0; position < rows * columns; position += 1) image.data.set([...this.colourAt(position), 255], position * 4);
    ink.putImageData(image, 0, 0);
    return small;
  }

  drawSigns(ink) {
    const { rows, columns, width, height } = this;
    ink.font = `600 ${Math.min(13, width - 1, height - 1)}px ui-monospace, monospace`;
    ink.textAlign = "center";
    ink.textBaseline = "middle";
    ink.fillStyle = mode() === "dark" ? "#111" : "#fff";
    for (let position = 0; position < rows * columns; position += 1) {
      const sign = this.signAt(position);
      if (sign) ink.fillText(sign, ((position % columns) + 0.5) * width, (Math.floor(position / columns) + 0.55) * height);
    }
  }

  positionOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.rows);
    if (row < 0 || column < 0 || row >= this.rows || column >= this.columns) return null;
    return row * this.columns + column;
  }

  point(position) {
    this.mark.hidden = position === null;
    if (position === null) return;
    Object.assign(this.mark.style, {
      left: `${(position % this.columns) * this.width}px`, top: `${Math.floor(position / this.columns) * this.height}px`,
      width: `${this.width}px`, height: `${this.height}px`,
    });
  }
}

// The four maps of one slice, the selectors of the other axes, and the line that reads the cursor.
class Maps {
  constructor(data, operator, start) {
    this.data = data;
    this.shape = data.shape.length > 1 ? data.shape : [1, ...(data.shape.length ? data.shape : [1])];
    this.axes = data.shape.length > 1 ? axesOf(data.name, operator, data.shape.length) : ["", data.shape.length ? "axis 0" : ""];
    this.rows = this.shape[this.shape.length - 2];
    this.columns = this.shape[this.shape.length - 1];
    this.slice = this.rows * this.columns;
    this.lead = this.shape.slice(0, -2);
    this.cursor = this.positionOfIndex(start);
    this.maps = el("div", { class: "maps" });
    this.readout = el("dl", { class: "readout", "aria-live": "polite" });
    this.selectors = this.lead.map((length, axis) => this.selector(length, axis));
    this.node = el("div", { class: "maps-box" }, el("div", { class: "selectors" }, this.selectors.map((one) => one.label)), this.maps, this.readout);
    this.drawn = [];
    if (this.rows * this.columns > 0) this.draw();
    else this.maps.append(el("p", { class: "muted" }, `The shape (${data.shape.join(", ")}) has no elements.`));
  }

  positionOfIndex(index) {
    if (!index || index.length !== this.data.shape.length) return 0;
    return this.data.shape.reduce((position, length, axis) => position * length + index[axis], 0);
  }

  indexOf(position) {
    const index = [];
    for (let axis = this.shape.length - 1; axis >= 0; axis -= 1) {
      index.unshift(position % this.shape[axis]);
      position = Math.floor(position / this.shape[axis]);
    }
    return index;
  }

  selector(length, axis) {
    const worst = this.worstBy(axis);
    const select = el("select", {}, Array.from({ length }, (_, index) => el("option", { value: index }, worst[index] ? `${index}  (${worst[index]} beyond)` : String(index))));
    select.value = String(this.indexOf(this.cursor)[axis]);
    select.addEventListener("change", () => this.move(axis, Number(select.value)));
    return { select, label: el("label", {}, el("span", {}, this.axes[axis]), select, el("span", { class: "muted" }, `of ${length}`)) };
  }

  worstBy(axis) {
    const counts = new Array(this.shape[axis]).fill(0);
    const below = this.shape.slice(axis + 1).reduce((product, length) => product * length, 1);
    if (this.data.budget) this.data.budget.forEach((used, position) => { if (used > 1) counts[Math.floor(position / below) % this.shape[axis]] += 1; });
    return counts;
  }

  move(axis, value) {
    const index = this.indexOf(this.cursor);
    index[axis] = value;
    this.cursor = index.reduce((position, at, one) => position * this.shape[one] + at, 0);
    this.draw();
  }

  get from() { return Math.floor(this.cursor / this.slice) * this.slice; }

  range(...arrays) {
    let top = 0;
    for (const array of arrays) for (let position = 0; position < this.slice; position += 1) {
      const size = Math.abs(array[this.from + position]);
      if (size > top && Number.isFinite(size)) top = size;
    }
    return top;
  }

  draw() {
    this.drawn = this.data.alone ? [this.signed(this.data.alone, this.data.got, this.range(this.data.got))] : this.four();
    this.maps.replaceChildren(...this.drawn.map((map) => map.node));
    this.drawn.forEach((map) => { map.draw(); this.listen(map); });
    this.read();
  }

  four() {
    const { got, want, error, budget } = this.data;
    const values = this.range(want) || this.range(got);
    const maps = [
      this.signed("Expected", want, values), this.signed("Actual", got, values),
      this.signed("Error (actual − expected)", error, this.range(error)),
    ];
    return budget ? [...maps, this.budgets(budget)] : maps;
  }

  signed(title, array, range) {
    const { from } = this;
    const kind = (position) => specialOf(array[from + position]);
    const map = new HeatMap(title, this.rows, this.columns, this.axes.slice(-2),
      (position) => (kind(position) ? SPECIAL[kind(position)][mode()] : signedColour(array[from + position], range)),
      (position) => (kind(position) ? SPECIAL[kind(position)].sign : ""));
    const below = array.subarray(from, from + this.slice).some((value) => value < 0);
    const stops = below ? SIGNED[mode()] : SIGNED[mode()].slice(2);  // weights use only the warm half
    map.legend.append(el("span", {}, below ? short(-range) : "0"), bar(stops), el("span", {}, short(range)), ...this.present(kind));
    return map;
  }

  budgets(array) {
    const { from } = this;
    const free = (position) => Number.isNaN(array[from + position]);
    const map = new HeatMap("Budget used (|error| / tolerance)", this.rows, this.columns, this.axes.slice(-2),
      (position) => (free(position) ? SPECIAL.free[mode()] : budgetColour(array[from + position])),
      (position) => (free(position) ? SPECIAL.free.sign : ""));
    map.legend.append(el("span", {}, "0"), bar(WITHIN[mode()]), el("b", {}, "1"), bar(BEYOND[mode()]), el("span", {}, "≥1e4"),
      ...this.present((position) => (free(position) ? "free" : null)));
    return map;
  }

  present(kind) {
    const kinds = new Set();
    for (let position = 0; position < this.slice; position += 1) kinds.add(kind(position));
    return [...kinds].filter(Boolean).map((one) => {
      const key = el("i", { class: "key" }, SPECIAL[one].sign);
      key.style.background = css(SPECIAL[one][mode()]);
      return el("span", { class: "special" }, key, SPECIAL[one].word);
    });
  }

  listen(map) {
    map.canvas.addEventListener("mousemove", (event) => {
      const position = map.positionOf(event);
      if (position !== null) this.set(this.from + position);
    });
    map.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
      if (!step) return;
      event.preventDefault();
      const position = this.cursor - this.from + step;
      if (position >= 0 && position < this.slice) this.set(this.from + position);
    });
  }

  set(position) {
    this.cursor = position;
    this.read();
  }

  read() {
    const { got, want, error, tolerance, budget } = this.data;
    const position = this.cursor;
    const index = this.indexOf(position).slice(-this.data.shape.length || undefined);
    const named = this.axes.filter(Boolean).map((axis, at) => `${axis} ${index[at]}`).join(", ");
    const entries = [["index", `[${index.join(", ")}]`], ["", named]];
    if (this.data.alone) entries.push([this.data.alone.toLowerCase(), number(got[position])]);
    else entries.push(["expected", number(want[position])], ["actual", number(got[position])], ["error", number(error[position])]);
    if (tolerance) entries.push(["tolerance", number(tolerance[position])], ["budget", Number.isNaN(budget[position]) ? "not judged" : number(budget[position])]);
    this.readout.replaceChildren(...entries.map(([name, text]) => el("div", { "data-name": name || "axes" }, el("dt", {}, name), el("dd", {}, text))));
    this.drawn.forEach((map) => map.point(position - this.from));
  }
}

function bar(stops) {
  const node = el("i", { class: "bar" });
  node.style.background = gradient(stops);
  return node;
}

// If the shapes differ, no error can be drawn: both sides are shown separately.
function aloneMaps({ name, want, got }, operator) {
  const sides = [["Expected", want], ["Actual", got]].filter(([, side]) => side);
  return el("div", {}, sides.map(([alone, { shape, numbers }]) => el("div", { class: "alone" },
    el("p", {}, `${alone}: shape (${shape.join(", ")})`), new Maps({ name, shape, alone, got: numbers }, operator, null).node)));
}
