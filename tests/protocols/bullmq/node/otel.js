// A Node producer or worker with bullmq-otel: `node otel.js add|work REDIS_PORT QUEUE`; prints the id of its trace.
const { context, propagation, trace } = require("@opentelemetry/api");
const { AsyncLocalStorageContextManager } = require("@opentelemetry/context-async-hooks");
const { W3CTraceContextPropagator } = require("@opentelemetry/core");
const { BasicTracerProvider } = require("@opentelemetry/sdk-trace-base");
const { Queue, Worker } = require("bullmq");
const { BullMQOtel } = require("bullmq-otel");

const [, , what, port, name] = process.argv;
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
trace.setGlobalTracerProvider(new BasicTracerProvider());

const options = { connection: { port: Number(port), maxRetriesPerRequest: null }, telemetry: new BullMQOtel("shop") };
const currentTrace = () => trace.getActiveSpan().spanContext().traceId;

async function add() {
  const queue = new Queue(name, options);
  await trace.getTracer("shop").startActiveSpan("request", async (span) => {
    console.log(currentTrace());
    await queue.add("charge", { order: 17 });
    span.end();
  });
  await queue.close();
}

async function work() {
  const worker = new Worker(name, async () => console.log(currentTrace()), options);
  worker.on("completed", () => worker.close());
}

({ add, work })[what]();
