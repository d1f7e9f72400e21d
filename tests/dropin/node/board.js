// board: Bull Board itself, asked by JSON lines on stdin, answering by JSON lines on stdout.
//
//   -> {"id": 7, "op": "ask", "args": {"method": "get", "route": "/api/queues", "query": {…}}}
//   <- {"id": 7, "value": {"status": 200, "body": {…}}}
//
// Its routes are called as a web server's adapter would call them; what they answer is held against Bull
// Board's own schemas.

const path = require('path');
const readline = require('readline');

const modules = process.env.CORRAL_NODE_MODULES || path.join(__dirname, '..', '..', '..', 'node_modules');
const bullmq = path.join(modules, process.env.CORRAL_NODE_PACKAGE || 'bullmq');
// the board requires BullMQ itself, too: let it be the same
require.cache[require.resolve(path.join(modules, 'bullmq'))] = { exports: require(bullmq) };
const { Queue } = require(bullmq);
const { createBullBoard } = require(path.join(modules, '@bull-board', 'api'));
const { BullMQAdapter } = require(path.join(modules, '@bull-board', 'api', 'bullMQAdapter'));

let queues = [];
let board = null;

// What an adapter for a web server keeps of what the board gives it.
class Kept {
  setQueues(found) { this.queues = found; return this; }
  setViewsPath() { return this; }
  setStaticPath() { return this; }
  setUIConfig(config) { this.uiConfig = config; return this; }
  setEntryRoute() { return this; }
  setErrorHandler(handler) { this.failed = handler; return this; }
  setApiRoutes(routes) { this.routes = routes; return this; }
}

const operations = {
  async open({ url, prefix, names }) {
    const { hostname, port } = new URL(url);
    const connection = { host: hostname, port: Number(port) };
    queues = names.map(name => new Queue(name, { prefix, connection, skipMetasUpdate: true }));
    await Promise.all(queues.map(queue => queue.waitUntilReady()));
    board = new Kept();
    createBullBoard({
      queues: queues.map(queue => new BullMQAdapter(queue)),
      serverAdapter: board,
      options: { validateResponses: true, uiConfig: { showWorkers: true } },
    });
  },
  async ask({ method, route, params, query, body }) {
    const found = board.routes.find(each => each.method === method && [].concat(each.route).includes(route));
    if (!found) throw new Error(`Bull Board has no route ${method} ${route}`);
    const request = {
      queues: board.queues, uiConfig: board.uiConfig, params: params || {}, query: query || {},
      body: body || {}, headers: {},
    };
    const answer = await found.handler(request);
    return { status: answer.status || 200, body: answer.body === undefined ? null : answer.body };
  },
  async closeAll() {
    const closing = queues;
    queues = [];
    await Promise.all(closing.map(queue => queue.close()));
  },
};

function answer(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

async function handle(text) {
  const { id, op, args } = JSON.parse(text);
  try {
    const value = await operations[op](args || {});
    answer({ id, value: value === undefined ? null : value });
  } catch (error) {
    answer({ id, error: { name: error.name, message: error.stack || error.message, code: error.code } });
  }
}

readline.createInterface({ input: process.stdin }).on('line', handle).on('close', () => process.exit(0));
