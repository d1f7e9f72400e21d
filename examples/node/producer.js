// Adds jobs with BullMQ and waits for their results, whichever worker runs them.
//
//   npm install bullmq@5.62.0
//   REDIS_URL=redis://127.0.0.1:6379 corral worker worker:app     # in one terminal
//   REDIS_URL=redis://127.0.0.1:6379 node producer.js             # in another

const { Queue, QueueEvents } = require("bullmq");

const url = new URL(process.env.REDIS_URL || "redis://127.0.0.1:6379");
const connection = { host: url.hostname, port: Number(url.port || 6379) };

async function main() {
  const queue = new Queue("greetings", { connection });
  // start with the first event in the stream: a job may end before we listen
  const events = new QueueEvents("greetings", { connection, lastEventId: "0" });
  await events.waitUntilReady();

  const names = ["Ada", "Grace", "Barbara"];
  const jobs = await queue.addBulk(
    names.map((name) => ({ name: "greet", data: { name }, opts: { attempts: 3, backoff: { type: "fixed", delay: 100 } } })),
  );
  for (const job of jobs) {
    console.log(job.id, await job.waitUntilFinished(events, 30_000));
  }
  await events.close();
  await queue.close();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
