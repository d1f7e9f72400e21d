// Numbers, durations and times as people read them.

import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const number = (value) => (value === undefined || value === null ? "–" : whole.format(value));
export const compact = (value) => (value >= 100000 ? short.format(value) : number(value));
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const percent = (share) => (share && share < 0.01 ? "< 1 %" : `${Math.round(share * 100)} %`);

export function rate(value) {
  if (!value) return "0";
  return value >= 100 ? whole.format(value) : value >= 10 ? value.toFixed(0) : value.toFixed(1);
}

export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return s % 60 < 0.5 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return s % 3600 < 60 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

export function age(ms) {
  const s = Math.max(ms, 0) / 1000;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function relative(at, now = Date.now()) {
  const distance = now - at;
  if (Math.abs(distance) < 1500) return "now";
  return distance > 0 ? `${age(distance)} ago` : `in ${age(-distance)}`;
}

export const absoluteTime = (at) => absolute.format(new Date(at));
export const timeInZone = (at, zone) => {
  try {
    return new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", timeZone: zone }).format(new Date(at));
  } catch { return absoluteTime(at); }
};

export function bytes(value) {
  if (value === undefined || value === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

// a time that stays right while the page is open, absolute on hover
export function time(at, words = relative) {
  if (!at) return h("span.is-zero", {}, "–");
  const element = h("time", { datetime: new Date(at).toISOString(), title: absoluteTime(at), data: { at: String(at) } }, words(at));
  element.words = words;
  return element;
}

setInterval(() => {
  if (document.hidden) return;
  const now = Date.now();
  for (const element of document.querySelectorAll("time[data-at]")) {
    const text = element.words(Number(element.dataset.at), now);
    if (element.textContent !== text) element.textContent = text;
  }
}, 1000);

export const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export function preview(value, length = 160) {
  if (value === undefined || value === null) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return cut(text.replace(/\s+/g, " "), length);
}
