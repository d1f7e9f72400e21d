// Node BullMQ on a cluster: adds jobs to {orders} and waits for them, works on {parcels}; prints what came of it.
const { Queue, QueueEvents, Worker } = require("bullmq");
const { Cluster } = require("ioredis");

const nodes = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const open = [];
const connect = () => {
  const cluster = new Cluster(nodes, { redisOptions: { maxRetriesPerRequest: null } });
  open.push(cluster);
  return cluster;
};

async function main() {
  const queue = new Queue("{orders}", { connection: connect() });
  // from the first event on: a job may end before the first XREAD for what comes is sent
  const events = new QueueEvents("{orders}", { connection: connect(), lastEventId: "0" });
  await events.waitUntilReady();
  const jobs = await queue.addBulk([0, 1, 2, 3, 4].map((number) => ({ name: "pack", data: { number } })));
  const packed = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 30000)));

  const shipped = await new Promise((resolve, reject) => {
    const worker = new Worker("{parcels}", async (job) => `shipped ${job.data.number}`, { connection: connect() });
    worker.on("completed", (job) => resolve(job.data.number));
    worker.on("error", reject);
    open.push({ disconnect: () => worker.close(true) });
  });
  console.log(JSON.stringify({ packed, shipped }));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
