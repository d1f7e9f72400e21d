// driver: real BullMQ objects, told what to do by JSON lines on stdin, answering by JSON lines on stdout.
//
//   -> {"id": 7, "op": "add", "args": {"queue": "q1", "name": "mail", "data": {}, "opts": {}}}
//   <- {"id": 7, "value": {"id": "1", …}}            or {"id": 7, "error": {"name": "Error", "message": "…"}}
//
// Requests run beside each other and are answered as they end. Objects are kept by a handle the caller picks.

const path = require('path');
const readline = require('readline');

const modules = process.env.CORRAL_NODE_MODULES || path.join(__dirname, '..', '..', '..', 'node_modules');
// 'bullmq' is 5.62.0, 'bullmq6' the newest 6 (package.json)
const bullmq = path.join(modules, process.env.CORRAL_NODE_PACKAGE || 'bullmq');
const { FlowProducer, Job, Queue, QueueEvents, Worker, UnrecoverableError, DelayedError } = require(bullmq);
const IORedis = require(path.join(modules, 'ioredis'));
const processors = require('./processors');

const objects = new Map();
const connections = new Map();
const claimed = new Map();

// BullMQ asks Date.now() for every time it writes, so setting it lets both sides tell the same time.
const realNow = Date.now;
let fixedNow = null;
Date.now = () => (fixedNow === null ? realNow() : fixedNow);

function connection(url) {
  if (!connections.has(url)) {
    connections.set(url, new IORedis(url, { maxRetriesPerRequest: null }));
  }
  return connections.get(url);
}

// A connection that takes no script as loaded: another test may have flushed them, and a script that is missing
// within MULTI is passed over in silence.
async function fresh(url) {
  const shared = connection(url);
  if (shared.status === "ready") {
    const ready = new Promise((resolve) => shared.once("ready", resolve));
    shared.disconnect(true);
    await ready;
  }
  return shared;
}

function object(handle) {
  const found = objects.get(handle);
  if (!found) throw new Error(`no object named ${handle}`);
  return found;
}

function keep(handle, made) {
  if (objects.has(handle)) throw new Error(`there is an object named ${handle} already`);
  made.on('error', error => process.stderr.write(`${handle}: ${error.stack}\n`));
  objects.set(handle, made);
  return made;
}

function shown(job) {
  if (!job) return null;
  const { queue, scripts, backend, toKey, ...fields } = job;
  return fields;
}

function errorOf({ message, stack, unrecoverable }) {
  const error = unrecoverable ? new UnrecoverableError(message) : new Error(message);
  error.stack = stack;
  return error;
}

function claim(worker, jobId) {
  const job = claimed.get(`${worker}/${jobId}`);
  if (!job) throw new Error(`job ${jobId} was not claimed by ${worker}`);
  return job;
}

function claimNext(worker, token, [fields, id]) {
  if (!fields) return null;
  const job = object(worker).createJob(fields, id);
  job.token = token;
  claimed.set(`${worker}/${id}`, job);
  return shown(job);
}

const operations = {
  async ping() {
    return { bullmq: require(path.join(bullmq, 'package.json')).version, node: process.version };
  },
  async clock({ now }) {
    fixedNow = now;
  },

  async openQueue({ handle, name, prefix, url, opts }) {
    // the constructor writes meta by itself and tells no one when: the tests that want it ask for it
    const queue = new Queue(name, { skipMetasUpdate: true, ...opts, prefix, connection: connection(url) });
    await keep(handle, queue).waitUntilReady();
  },
  async openWorker({ handle, name, prefix, url, opts }) {
    const worker = new Worker(name, null, { ...opts, prefix, connection: connection(url), autorun: false });
    await keep(handle, worker).waitUntilReady();
  },
  async runWorker({ handle, name, prefix, url, script, opts }) {
    const worker = new Worker(name, processors.make(script, { DelayedError, UnrecoverableError }), {
      ...opts, prefix, connection: connection(url),
    });
    worker.seen = { completed: [], failed: [], stalled: [], errors: [] };
    worker.on('completed', job => worker.seen.completed.push(job.id));
    worker.on('failed', (job, error) => worker.seen.failed.push([job && job.id, error.message]));
    worker.on('stalled', id => worker.seen.stalled.push(id));
    worker.on('error', error => worker.seen.errors.push(error.message));
    await keep(handle, worker).waitUntilReady();
  },
  async openEvents({ handle, name, prefix, url, opts }) {
    const events = new QueueEvents(name, { ...opts, prefix, connection: connection(url) });
    events.heard = [];
    const emit = events.emit.bind(events);
    events.emit = (event, ...args) => {
      // each event is told twice, the second time with the job's id in its name
      if (!event.includes(':')) events.heard.push([event, args.length > 1 ? args[0] : null, args[args.length - 1]]);
      return emit(event, ...args);
    };
    await keep(handle, events).waitUntilReady();
  },
  async heard({ handle }) {
    return object(handle).heard;
  },
  async seen({ handle }) {
    return object(handle).seen;
  },
  async close({ handle, force }) {
    const closing = object(handle);
    objects.delete(handle);
    for (const key of claimed.keys()) if (key.startsWith(`${handle}/`)) claimed.delete(key);
    await closing.close(force);
  },
  async closeAll() {
    fixedNow = null;
    claimed.clear();
    const all = [...objects.values()];
    objects.clear();
    await Promise.all(all.map(each => each.close(true)));
  },

  async add({ queue, name, data, opts }) {
    return shown(await object(queue).add(name, data, opts));
  },
  async addBulk({ queue, jobs }) {
    return (await object(queue).addBulk(jobs)).map(shown);
  },
  async queue({ handle, method, args }) {
    const answer = await object(handle)[method](...(args || []));
    if (Array.isArray(answer)) return answer.map(each => (each instanceof Job ? shown(each) : each));
    return answer instanceof Job ? shown(answer) : answer;
  },
  async settled({ handle, field }) {
    // a Queue writes its meta key some time after it was made
    const queue = object(handle);
    const client = await (queue.backend || queue).client;
    while (!(await client.hexists(queue.toKey('meta'), field))) await new Promise(resolve => setTimeout(resolve, 2));
  },
  async fromId({ queue, id }) {
    return shown(await Job.fromId(object(queue), id));
  },
  async job({ queue, id, method, args }) {
    const job = await Job.fromId(object(queue), id);
    if (!job) throw new Error(`job ${id} is not there`);
    return job[method](...(args || []));
  },
  async waitUntilFinished({ queue, events, id, ttl }) {
    return (await Job.fromId(object(queue), id)).waitUntilFinished(object(events), ttl);
  },

  async moveToActive({ worker, token }) {
    const running = object(worker);
    const { name } = running.opts;
    const [fields, id, limited, until] = running.backend
      ? await running.backend.moveToActive(token, name)
      : await running.scripts.moveToActive(await running.client, token, name);
    return { job: claimNext(worker, token, [fields, id]), limited: limited || 0, until: until || 0 };
  },
  async getNextJob({ worker, token }) {
    const job = await object(worker).getNextJob(token, { block: false });
    if (job) claimed.set(`${worker}/${job.id}`, job);
    return shown(job);
  },
  async moveToCompleted({ worker, id, result, hasResult, token, nextToken, fetchNext }) {
    const next = await claim(worker, id).moveToCompleted(hasResult === false ? undefined : result, token, fetchNext);
    claimed.delete(`${worker}/${id}`);
    return claimNext(worker, token, next || []);
  },
  async moveToFailed({ worker, id, error, token, fetchNext }) {
    const next = await claim(worker, id).moveToFailed(errorOf(error), token, fetchNext);
    claimed.delete(`${worker}/${id}`);
    return claimNext(worker, token, next || []);
  },
  async claimed({ worker, id, method, args }) {
    return claim(worker, id)[method](...(args || []));
  },
  async moveStalledJobsToWait({ worker }) {
    const { backend, scripts } = object(worker);
    return (backend || scripts).moveStalledJobsToWait();
  },
};

function answer(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

async function handle(text) {
  const { id, op, args } = JSON.parse(text);
  try {
    if (!operations[op]) throw new Error(`no operation named ${op}`);
    const value = await operations[op](args || {});
    answer({ id, value: value === undefined ? null : value });
  } catch (error) {
    answer({ id, error: { name: error.name, message: error.message, code: error.code } });
  }
}

readline.createInterface({ input: process.stdin }).on('line', handle).on('close', () => process.exit(0));

// -- flows and schedulers ------------------------------------------------------------------------------------

function shownTree(node) {
  return node && { job: shown(node.job), children: (node.children || []).map(shownTree) };
}

Object.assign(operations, {
  async openFlows({ handle, prefix, url }) {
    const flows = new FlowProducer({ prefix, connection: await fresh(url) });
    await keep(handle, flows).waitUntilReady();
  },
  async addFlow({ flows, flow }) {
    return shownTree(await object(flows).add(flow));
  },
  async addFlows({ flows, many }) {
    return (await object(flows).addBulk(many)).map(shownTree);
  },
  async getFlow({ flows, opts }) {
    return shownTree(await object(flows).getFlow(opts));
  },
});

Object.assign(operations, require('./scenarios')({ bullmq: require(bullmq), connection, keep, object }));

// A scheduler that begins at once asks `new Date()`, which is to tell the same time as Date.now().
const RealDate = Date;
global.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length ? args : [RealDate.now()]));
  }
};
