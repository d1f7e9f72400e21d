// Node BullMQ under measurement: `node bench/node/driver.js '{task}'` prints one reading.
// The same tasks, the same data and the same options as bench/drivers/corral_driver.py.
"use strict";

const path = require("path");
const modules = process.env.CORRAL_NODE_MODULES || path.join(__dirname, "..", "..", "node_modules");
const { Queue, Worker } = require(path.join(modules, process.env.CORRAL_NODE_PACKAGE || "bullmq"));

const QUEUE = "bench";
const WARM_UP = "warm-up";
const JOB = "work";
const BATCH = 1000;
const WARM_UP_JOBS = 2000;
const REST_MS = 10;
const CALLERS = 100;
// what Corral's native API gives a job by default
const OPTIONS = { attempts: 3, backoff: { type: "exponential", delay: 1000 }, keepLogs: 1000 };

const data = (number) => ({ number, text: "x".repeat(170) });
const now = () => Number(process.hrtime.bigint()) / 1e9;
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function serverCpu(queue) {
  const info = await (await (queue.backend || queue).client).info("cpu");
  const field = (name) => Number(new RegExp(`${name}:([0-9.]+)`).exec(info)[1]);
  return field("used_cpu_user") + field("used_cpu_sys");
}

async function timed(queue, count, work) {
  const server = await serverCpu(queue);
  const cpu = process.cpuUsage();
  const begin = now();
  await work();
  const seconds = now() - begin;
  const { user, system } = process.cpuUsage(cpu);
  return { count, seconds, own_cpu_s: (user + system) / 1e6, server_cpu_s: (await serverCpu(queue)) - server };
}

async function fill(queue, count, batch = BATCH) {
  for (let start = 0; start < count; start += batch) {
    const jobs = [];
    for (let number = start; number < Math.min(start + batch, count); number++) {
      jobs.push({ name: JOB, data: data(number), opts: OPTIONS });
    }
    await queue.addBulk(jobs);
  }
}

async function addAtOnce(queue, count) {
  await Promise.all(Array.from({ length: CALLERS }, () => addOneByOne(queue, count / CALLERS)));
}

async function addOneByOne(queue, count) {
  for (let number = 0; number < count; number++) await queue.add(JOB, data(number), OPTIONS);
}

// Fill a queue, then time a worker until the server holds every job as completed.
async function workOff(queue, connection, count, concurrency) {
  await fill(queue, count);
  let handled = 0;
  let allHandled;
  const ended = new Promise((resolve) => (allHandled = resolve));
  const nothing = async () => {
    if (++handled === count) allHandled();
  };
  const worker = new Worker(queue.name, nothing, { connection, concurrency, autorun: false });
  await worker.waitUntilReady();
  const reading = await timed(queue, count, async () => {
    worker.run();
    await ended;
    while ((await queue.getCompletedCount()) < count) await rest(1);
  });
  await worker.close();
  return reading;
}

async function latency(queue, connection, count) {
  let started;
  const note = async () => started(now());
  const worker = new Worker(queue.name, note, { connection, concurrency: 50 });
  await worker.waitUntilReady();
  const latencies = [];
  const warmUp = Math.floor(count / 5);
  for (let number = 0; number < warmUp + count; number++) {
    await rest(REST_MS);
    const start = new Promise((resolve) => (started = resolve));
    const begin = now();
    await queue.add(JOB, data(number), OPTIONS);
    const at = await start;
    if (number >= warmUp) latencies.push((at - begin) * 1000);
  }
  await worker.close();
  return { count, latencies_ms: latencies };
}

const MEASURES = {
  bulk_add: async (queue, warm, connection, { count, setting }) => {
    await fill(warm, WARM_UP_JOBS);
    return timed(queue, count, () => fill(queue, count, setting || BATCH));
  },
  one_add: async (queue, warm, connection, { count }) => {
    await addOneByOne(warm, WARM_UP_JOBS / 4);
    return timed(queue, count, () => addOneByOne(queue, count));
  },
  adds_at_once: async (queue, warm, connection, { count }) => {
    await addAtOnce(warm, WARM_UP_JOBS);
    return timed(queue, count, () => addAtOnce(queue, count));
  },
  processing: async (queue, warm, connection, { count, setting }) => {
    await workOff(warm, connection, WARM_UP_JOBS, setting);
    return workOff(queue, connection, count, setting);
  },
  latency: (queue, warm, connection, { count }) => latency(queue, connection, count),
};

async function main(task) {
  const { hostname, port } = new URL(task.url);
  const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
  const queue = new Queue(QUEUE, { connection });
  const warm = new Queue(WARM_UP, { connection });
  await Promise.all([queue.waitUntilReady(), warm.waitUntilReady()]);
  const reading = await MEASURES[task.measure](queue, warm, connection, task);
  await Promise.all([queue.close(), warm.close()]);
  console.log(JSON.stringify(reading));
}

main(JSON.parse(process.argv[2])).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
