// Small parts that several pages share: badges, empty states, tabs, key values, JSON.

import { copyButton, foreign, h } from "./dom.js";
import { number } from "./format.js";

export const STATES = ["waiting", "delayed", "active", "completed", "dead", "cancelled"];

export const stateBadge = (state) => h(`span.state.is-${STATES.includes(state) ? state : "unknown"}`, {}, state || "unknown");

export const protocolBadge = (protocol) => h("span.protocol", {}, protocol);

export const empty = (title, ...more) => h("div.empty", {}, h("p.empty-title", {}, title), more.length ? h("p", {}, ...more) : null);

export const loading = () => h("p.loading", { role: "status" }, "Loading…");

export function heading(title, ...tools) {
  return h("div.heading", {}, h("h1", {}, title), h("div.tools", {}, ...tools));
}

export function section(title, ...content) {
  const id = `section-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return h("section.panel", { "aria-labelledby": id }, h("h2", { id }, title), ...content);
}

export function facts(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl.facts", {}, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function cards(rows) {
  return h("dl.cards", {}, rows.map(([name, value, className]) => h("div", {}, h("dt", {}, name), h("dd", { class: className }, value))));
}

export function crumbs(...links) {
  const items = links.map(([text, href]) => h("li", {}, href ? h("a", { href }, foreign(text)) : foreign(text)));
  return h("nav.crumbs", { "aria-label": "You are here" }, h("ol", {}, items));
}

const MAX_TEXT = 20000;
const MAX_ITEMS = 100;

// a JSON value as a tree; long texts and lists are cut until one asks for the rest
export function json(value, label = "value") {
  const text = () => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
  const body = h("div.json", { tabindex: "0", role: "region", "aria-label": `${label}, JSON` }, node(value, 0));
  return h("div.json-box", {}, h("div.json-tools", {}, copyButton(text)), body);
}

function node(value, depth) {
  if (value === null) return h("span.json-null", {}, "null");
  if (typeof value === "string") return longText(value);
  if (typeof value !== "object") return h(`span.json-${typeof value}`, {}, String(value));
  const isList = Array.isArray(value);
  const entries = isList ? value.map((item, index) => [index, item]) : Object.entries(value);
  if (!entries.length) return h("span", {}, isList ? "[]" : "{}");
  const list = h("ul", {}, entries.slice(0, MAX_ITEMS).map((entry) => item(entry, isList, depth)));
  if (entries.length > MAX_ITEMS) list.append(more(list, entries, isList, depth, MAX_ITEMS));
  const note = `${isList ? "[" : "{"}${number(entries.length)}${isList ? "]" : "}"}`;
  return h("details", { open: depth < 3 }, h("summary", {}, note), list);
}

const item = ([key, value], isList, depth) => (
  h("li", {}, h(isList ? "span.json-index" : "bdi.json-key", {}, String(key)), h("span.json-colon", {}, ": "), node(value, depth + 1)));

function more(list, entries, isList, depth, from) {
  const row = h("li", {}, h("button.quiet.small", { type: "button", onclick: () => {
    row.replaceWith(...entries.slice(from, from + 1000).map((entry) => item(entry, isList, depth)));
    if (entries.length > from + 1000) list.append(more(list, entries, isList, depth, from + 1000));
  } }, `${number(entries.length - from)} more`));
  return row;
}

function longText(value) {
  if (value.length <= MAX_TEXT) return h("bdi.json-string", {}, JSON.stringify(value));
  const element = h("span", {}, h("bdi.json-string", {}, JSON.stringify(value.slice(0, MAX_TEXT))),
    h("button.quiet.small", { type: "button", onclick: () => element.replaceChildren(h("bdi.json-string", {}, JSON.stringify(value))) },
      `${number(value.length - MAX_TEXT)} more characters`));
  return element;
}
