// Functions that create elements. Everything from the run is inserted as text, never as markup.
const $ = (id) => document.getElementById(id);

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== "") node.append(child);
  return node;
}

const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

// Only web addresses become links.
function linked(url, text) {
  let parsed = null;
  try { parsed = new URL(url); } catch (_) { /* no address: shown as text */ }
  if (!parsed || !["http:", "https:"].includes(parsed.protocol)) return document.createTextNode(text || url);
  return el("a", { href: parsed.href, rel: "noopener noreferrer", target: "_blank" }, text || url);
}

function copyButton(text) {
  const button = el("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copied(text);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch (_) {
    const area = el("textarea", { class: "sr" });
    area.value = text;
    ($("detail").open ? $("detail") : document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function setOptions(select, values, all) {
  select.replaceChildren();
  if (all) select.append(el("option", { value: "" }, all));
  for (const value of values) select.append(el("option", { value }, value));
}
