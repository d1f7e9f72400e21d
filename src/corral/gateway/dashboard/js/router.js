// The address: #/page/part/part?name=value. Every view can be shared, and the back button goes back to it.

export function parse(hash = location.hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((one) => { try { return decodeURIComponent(one); } catch { return one; } });
  return { page: parts[0] || "queues", parts: parts.slice(1), params: new URLSearchParams(search) };
}

export function link(page, parts = [], params = {}) {
  const path = [page, ...parts].map((one) => encodeURIComponent(one)).join("/");
  const kept = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#/${path}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
}

export const queueLink = (queue, params = {}) => link("queue", [queue.protocol, queue.queue], params);
export const jobLink = (queue, id, params = {}) => link("job", [queue.protocol, queue.queue, id], params);

export const go = (hash) => { location.hash = hash; };

// changes parameters without opening the page anew; `push` adds a step for the back button
export function setParams(values, push = false) {
  const route = parse();
  const params = Object.fromEntries(route.params);
  const hash = link(route.page, route.parts, { ...params, ...values });
  if (hash === location.hash) return;
  if (push) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}

export function start(open) {
  const follow = () => {
    if (location.hash === "#main") return;
    open(parse());
  };
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  follow();
}
