// Colours of maps: blue to orange for signed values, grey-blue within the bound, warm colours beyond it.
// Each value outside the scale (NaN, infinities, not judged) has its own colour, sign and word.
const DARK = matchMedia("(prefers-color-scheme: dark)");
const SIGNED = {
  light: [[33, 86, 160], [128, 178, 218], [246, 246, 244], [244, 176, 92], [166, 76, 4]],
  dark: [[142, 203, 255], [56, 118, 180], [30, 34, 40], [192, 116, 31], [255, 207, 138]],
};
const WITHIN = { light: [[244, 246, 248], [150, 174, 206]], dark: [[32, 37, 44], [84, 112, 150]] };
const BEYOND = { light: [[248, 190, 90], [222, 96, 24], [128, 20, 20]], dark: [[196, 112, 28], [240, 160, 70], [255, 226, 180]] };
const SPECIAL = {
  nan: { light: [190, 36, 170], dark: [236, 92, 216], sign: "×", word: "NaN" },
  plus: { light: [17, 94, 89], dark: [64, 196, 180], sign: "+", word: "+inf" },
  minus: { light: [76, 29, 149], dark: [167, 139, 250], sign: "−", word: "-inf" },
  free: { light: [214, 216, 219], dark: [58, 62, 68], sign: "/", word: "not judged" },
};
const mode = () => (DARK.matches ? "dark" : "light");

function between(stops, at) {
  const position = Math.min(1, Math.max(0, at)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(position));
  return stops[low].map((from, part) => Math.round(from + (stops[low + 1][part] - from) * (position - low)));
}

function specialOf(value) {
  if (Number.isNaN(value)) return "nan";
  if (value === Infinity) return "plus";
  if (value === -Infinity) return "minus";
  return null;
}

const signedColour = (value, range) => between(SIGNED[mode()], 0.5 + (0.5 * value) / (range || 1));

// Budgets: muted colours up to 1, warm colours over four decades beyond it.
function budgetColour(value) {
  if (value <= 1) return between(WITHIN[mode()], value);
  return between(BEYOND[mode()], value === Infinity ? 1 : Math.log10(value) / 4);
}

const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

function gradient(stops) {
  return `linear-gradient(90deg, ${stops.map(css).join(", ")})`;
}

// A number with at most seven significant digits, in scientific notation if it is very large or small.
function number(value) {
  if (value === undefined || value === null) return "";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const size = Math.abs(value);
  return size >= 1e-4 && size < 1e6 ? String(Number(value.toPrecision(7))) : tidy(Number(value.toPrecision(7)).toExponential());
}

const tidy = (text) => text.replace("e+", "e");

function short(value) {
  if (!Number.isFinite(value) || value === 0) return number(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e5 ? String(Number(value.toPrecision(3))) : tidy(value.toExponential(1));
}
