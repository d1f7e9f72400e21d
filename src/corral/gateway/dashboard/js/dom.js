// Elements. Everything that comes from a queue becomes a text node or the value of an attribute in SAFE, never markup.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "textContent", "indeterminate", "tabIndex", "open", "selected", "readOnly"]);

function append(element, children) {
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (name === "href" && !/^(#|\?|static\/|openapi\.json$)/.test(value)) throw new Error("links stay on this page");
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

// h("a.button", { href: "#/queues" }, "Queues")
export function h(selector, attributes = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  const isChild = attributes instanceof Node || typeof attributes !== "object" || Array.isArray(attributes) || attributes === null;
  if (isChild) return append(element, [attributes, ...children]);
  set(element, attributes);
  return append(element, children);
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) element.setAttribute(name, String(value));
  }
  return append(element, children);
}

export function write(element, text, className) {
  if (element.textContent !== text) element.textContent = text;
  if (className !== undefined && element.className !== className) element.className = className;
  return element;
}

// text that somebody else wrote: its direction of writing stays inside its own element
export const foreign = (text, className = "") => h("bdi", { class: className }, text);

export const byId = (id) => document.getElementById(id);

export function copyButton(text, label = "Copy") {
  const button = h("button.quiet.small", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  } }, label);
  return button;
}
