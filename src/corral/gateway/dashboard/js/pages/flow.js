// One flow as a tree: what waits for what, with the states as they change.

import { get, jobPath } from "../api.js";
import { foreign, h, svg } from "../dom.js";
import { refreshOn } from "../feed.js";
import { cut, duration, number } from "../format.js";
import { crumbs, stateBadge } from "../parts.js";
import { go, jobLink, link } from "../router.js";

const [WIDTH, HEIGHT, GAP_X, GAP_Y, PAD] = [190, 44, 56, 10, 16];

// leaves take a row each; a parent stands in the middle of its children
function place(node, depth, at) {
  const children = node.children.map((child) => place(child, depth + 1, at));
  const own = children.length ? (children[0].y + children[children.length - 1].y) / 2 : at.row++ * (HEIGHT + GAP_Y);
  at.depth = Math.max(at.depth, depth);
  return { node, depth, x: depth * (WIDTH + GAP_X), y: own, children };
}

function draw(root, protocol) {
  const at = { row: 0, depth: 0 };
  const tree = place(root, 0, at);
  const [width, height] = [(at.depth + 1) * (WIDTH + GAP_X) - GAP_X + 2 * PAD, Math.max(at.row, 1) * (HEIGHT + GAP_Y) - GAP_Y + 2 * PAD];
  const [edges, nodes] = [svg("g"), svg("g")];
  const walk = (spot) => {
    const { node } = spot;
    for (const child of spot.children) {
      const [x1, y1, x2, y2] = [spot.x + WIDTH, spot.y + HEIGHT / 2, child.x, child.y + HEIGHT / 2];
      const isOpen = child.node.state !== "completed";
      edges.append(svg("path", { class: `flow-edge${isOpen ? " is-open" : ""}`, d: `M${x1} ${y1}C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}` }));
      walk(child);
    }
    const open = () => go(jobLink({ protocol, queue: node.queue }, node.id));
    const took = node.finished_at && node.started_at ? `, ${duration(node.finished_at - node.started_at)}` : "";
    nodes.append(svg("g", { class: `flow-node is-${node.state}`, transform: `translate(${spot.x} ${spot.y})`, tabindex: "0", role: "link",
      onclick: open, onkeydown: (event) => { if (event.key === "Enter") open(); } },
    svg("title", {}, `${node.name} · ${node.queue} · ${node.id}${node.reason ? ` · ${node.reason}` : ""}`), svg("rect", { width: WIDTH, height: HEIGHT, rx: 7 }), svg("circle", { class: "dot", cx: 14, cy: 16, r: 4.5 }),
    svg("text", { x: 26, y: 20 }, cut(node.name, 24)), svg("text", { class: "sub", x: 26, y: 36 }, cut(`${node.state || "gone"}${took} · ${node.queue}${node.hidden ? ` · ${node.hidden} more` : ""}`, 30))));
  };
  walk(tree);
  const holder = svg("g", { transform: `translate(${PAD} ${PAD})` }, edges, nodes);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Jobs of the flow" }, holder);
}

function tally(node, counts = {}) {
  counts[node.state] = (counts[node.state] || 0) + 1;
  node.children.forEach((child) => tally(child, counts));
  return counts;
}

export async function open({ parts, signal, show, fail }) {
  const [protocol, queue, id] = parts;
  const where = { protocol, queue };
  const box = h("div.flow-box", { tabindex: "0", role: "region", "aria-label": "Flow" });
  const summary = h("p.tools");
  let shown = "";

  async function load() {
    const root = await get(`${jobPath(where, id)}/flow?children=3000`, signal);
    const text = JSON.stringify(root);
    if (text === shown) return;
    shown = text;
    const counts = tally(root);
    summary.replaceChildren(...Object.entries(counts).map(([state, count]) => h("span", {}, stateBadge(state), ` ${number(count)}`)));
    const { scrollTop, scrollLeft } = box;
    box.replaceChildren(draw(root, protocol));
    box.scrollTo(scrollLeft, scrollTop);
  }

  await load();
  show(h("div.page", {}, crumbs(["Flows", link("flows")], [queue], [id]), h("div.heading", {}, h("h1", {}, "Flow of ", foreign(id)), summary), box), `Flow ${id}`);
  refreshOn(signal, (frame) => Object.keys(frame.queues).some((key) => key.startsWith(`${protocol}/`)), () => load().catch(fail), 1000, 10000);
}
