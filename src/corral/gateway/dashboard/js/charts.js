// Charts: lines in a row of a table, and bars or lines with axes, units, tooltips and a table of the numbers.

import { byId, h, svg } from "./dom.js";
import { compact, number } from "./format.js";

const clock = (at) => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

export function spark(label) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const element = svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label }, area, line);
  const draw = (points) => {
    const highest = Math.max(1, ...points);
    const step = 100 / Math.max(points.length - 1, 1);
    const d = points.map((value, x) => `${x ? "L" : "M"}${(x * step).toFixed(2)} ${(23 - (value / highest) * 21).toFixed(1)}`).join("");
    line.setAttribute("d", d);
    area.setAttribute("d", `${d}L100 24L0 24Z`);
    element.classList.toggle("is-flat", highest === 1 && points.every((value) => !value));
  };
  return { element, draw };
}

function niceMaximum(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  const step = [1, 2, 5, 10].find((one) => one * power >= value);
  return Math.max(step * power, 4);
}

// axes, and for each point a tooltip; `pick` is called with the number of a point that is clicked
function frame({ title, unit, from, stepMs, series, label, format, maximum, pick, draw, columns = 1 }) {
  const count = series[0].points.length;
  // drawn for the width there is, so that its letters are as large as all others
  const page = Math.min(byId("page").clientWidth, 1680);
  const space = page > 1000 ? page / columns : page;
  const [width, height, left, bottom, top] = [Math.max(space > 640 ? space - 200 : space - 20, 280), 150, 48, 20, 8];
  const y = (value) => top + (height - top - bottom) * (1 - value / maximum);
  const slot = (width - left) / count;
  const tip = h("div.tip", { hidden: true });
  const chart = svg("svg", { class: pick ? "bars can-pick" : "bars", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}, ${unit}; a table has the numbers` });
  for (const value of [0, maximum / 2, maximum]) {
    chart.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }),
      svg("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  draw(chart, (n) => left + n * slot, y, slot);
  const marks = Math.max(Math.round(count / (width > 560 ? 6 : 3)), 1);
  for (let n = 0; n < count; n += 1) {
    const x = left + n * slot;
    if (n % marks === 0 && n < count - marks / 2) chart.append(svg("text", { class: "axis", x, y: height - 4 }, label(from + n * stepMs)));
    const show = (event) => {
      tip.hidden = false;
      tip.replaceChildren(h("strong", {}, label(from + n * stepMs)), ...series.map((one) => h("span", {}, h(`i.key.${one.className}`), `${format(one.points[n], true)} ${one.name}`)));
      const box = chart.getBoundingClientRect();
      const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0.08), 0.92);
      tip.style.left = `${share * 100}%`;
    };
    chart.append(svg("rect", { class: "hit", x, y: 0, width: slot, height: height - bottom, onpointerenter: show, onpointermove: show, onclick: () => pick?.(n) }));
  }
  chart.addEventListener("pointerleave", () => { tip.hidden = true; });
  const legend = h("p.legend", {}, series.map((one) => h("span", {}, h(`i.key.${one.className}`), one.name)), h("span.unit", {}, unit));
  return h("figure.chart", {}, legend, h("div.chart-box", {}, chart, tip), numbers({ title, unit, from, stepMs, series, label, format }));
}

function numbers({ title, unit, from, stepMs, series, label, format }) {
  const rows = series[0].points.map((_, n) => h("tr", {}, h("th", { scope: "row" }, label(from + n * stepMs)), series.map((one) => h("td", {}, format(one.points[n], true)))));
  return h("table.hidden", {}, h("caption", {}, `${title}, ${unit}`), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), series.map((one) => h("th", { scope: "col" }, one.name)))), h("tbody", {}, rows));
}

// series: [{ name, className, points }], all of the same length; stacked
export function bars({ series, label = clock, ...options }) {
  const totals = series[0].points.map((_, n) => series.reduce((sum, one) => sum + one.points[n], 0));
  const draw = (chart, x, y, slot) => totals.forEach((_, n) => {
    let base = 0;
    for (const one of series) {
      const value = one.points[n];
      if (value) chart.append(svg("rect", { class: `bar ${one.className}`, x: x(n) + 0.5, width: Math.max(slot - 1.5, 1), y: y(base + value), height: y(base) - y(base + value) }));
      base += value;
    }
  });
  const format = (value, isExact) => (isExact ? number(value) : compact(value));
  return frame({ ...options, series, label, format, maximum: niceMaximum(Math.max(...totals)), draw });
}

// the same as lines; a point may be null, where there is no value
export function lines({ series, label = clock, format, ...options }) {
  const highest = Math.max(1, ...series.flatMap((one) => one.points.map((value) => value ?? 0)));
  const draw = (chart, x, y, slot) => {
    for (const one of series) {
      let d = "";
      one.points.forEach((value, n) => {
        if (value === null) return;
        const isNew = !n || one.points[n - 1] === null;
        d += `${isNew ? "M" : "L"}${(x(n) + slot / 2).toFixed(1)} ${y(value).toFixed(1)}`;
        // a value between gaps is a dot
        if (isNew && (one.points[n + 1] ?? null) === null) d += "h.1";
      });
      chart.append(svg("path", { class: `curve ${one.className}`, d }));
    }
  };
  return frame({ ...options, series, label, format, maximum: niceMaximum(highest), draw });
}
