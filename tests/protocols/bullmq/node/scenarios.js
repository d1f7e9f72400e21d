// scenarios: Node's side of a scenario that is run with each pair of clients (tests/dropin/scenarios).
//
// Objects are called by method names; a job that is returned can be called afterwards by its id. Arguments and
// processors are data, with these words in them: "$token", "$job" (the running job as a parent), {"$in": ms}
// (a moment from now), {"$error": message}.

const FIELDS = [
  'id', 'name', 'data', 'opts', 'progress', 'returnvalue', 'failedReason', 'attemptsMade', 'attemptsStarted',
  'stalledCounter', 'delay', 'priority', 'timestamp', 'processedOn', 'finishedOn', 'parentKey', 'deduplicationId',
  'repeatJobKey', 'processedBy', 'deferredFailure',
];
const EVENTS = ['active', 'completed', 'failed', 'progress', 'stalled', 'error'];

module.exports = ({ bullmq, connection, keep, object }) => {
  const { Job, Queue, QueueEvents, Worker, FlowProducer } = bullmq;

  function shown(value, jobs) {
    if (value instanceof Job) {
      jobs.set(value.id, value);
      const fields = Object.fromEntries(FIELDS.map(name => [name, value[name]]));
      return { ...fields, traces: (value.stacktrace || []).length };
    }
    if (Array.isArray(value)) return value.map(each => shown(each, jobs));
    if (value && typeof value === 'object') {
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shown(each, jobs)]));
    }
    return value;
  }

  function filled(value, job, token) {
    if (value === '$token') return token;
    if (value === '$job') return { id: job.id, queue: job.queueQualifiedName };
    if (Array.isArray(value)) return value.map(each => filled(each, job, token));
    if (value && typeof value === 'object') {
      if ('$in' in value) return Date.now() + value.$in;
      if ('$error' in value) return new Error(value.$error);
      if ('$unrecoverable' in value) return new bullmq.UnrecoverableError(value.$unrecoverable);
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, filled(each, job, token)]));
    }
    return value;
  }

  // a script is {job's name: [steps of its first start, of its second, …]}; the last ones are repeated
  function processor(script, target) {
    return async function work(job, token) {
      const starts = script[job.name] || [[]];
      for (const [verb, ...args] of starts[Math.min(job.attemptsStarted, starts.length) - 1]) {
        const [first, ...rest] = filled(args, job, token);
        if (verb === 'return') return first;
        if (verb === 'fail') throw new Error(first);
        if (verb === 'throw') throw first === 'RateLimitError' ? Worker.RateLimitError() : new bullmq[first](...rest);
        if (verb === 'sleep') await new Promise(resolve => setTimeout(resolve, first));
        if (verb === 'read') target.told.push(['read', job.id, shown(job[first], new Map())]);
        if (verb === 'job') target.told.push([first, job.id, shown(await job[first](...rest), new Map())]);
        if (verb === 'job?' && !(await job[first](...rest))) return 'nothing to wait for';
        if (verb === 'worker') await target.made[first](...rest);
        if (verb === 'queue') await object(target.queue).made[first](...rest);
      }
      return null;
    };
  }

  return {
    async openScenario({ handle, kind, name, prefix, url, opts, script, strategy, queue }) {
      const target = { told: [], jobs: new Map(), queue };
      // without skipMetasUpdate the constructor writes meta, and tells no one when
      const options = { skipMetasUpdate: true, ...opts, prefix, connection: connection(url) };
      if (strategy !== undefined && strategy !== null) {
        const backoffStrategy = made => {
          if (strategy === 'throws') throw new Error('the strategy has failed');
          return strategy < 0 ? strategy : made * strategy;
        };
        options.settings = { backoffStrategy };
      }
      if (kind === 'Queue') target.made = new Queue(name, options);
      if (kind === 'FlowProducer') target.made = new FlowProducer(options);
      if (kind === 'Worker') {
        target.made = new Worker(name, script ? processor(script, target) : null, { ...options, autorun: !!script });
        for (const event of EVENTS) {
          target.made.on(event, (first, second) => {
            if (first instanceof Error) target.told.push([event, null, first.message]);
            else if (event === 'stalled') target.told.push([event, first, null]);
            else if (second instanceof Error) target.told.push([event, first && first.id, second.message]);
            else target.told.push([event, first.id, event === 'active' ? null : shown(second, new Map())]);
          });
        }
      }
      if (kind === 'QueueEvents') {
        target.made = new QueueEvents(name, { lastEventId: '0-0', ...options });
        const emit = target.made.emit.bind(target.made);
        target.made.emit = (event, ...args) => {
          if (!event.includes(':') && args.length > 1) target.told.push([event, args[0]]);
          if (event === 'drained') target.told.push([event, null]);
          return emit(event, ...args);
        };
      }
      target.on = (...args) => target.made.on(...args);
      target.close = force => target.made.close(force);
      await keep(handle, target).made.waitUntilReady();
    },
    async callScenario({ handle, method, args, token }) {
      const target = object(handle);
      return shown(await target.made[method](...filled(args, null, token)), target.jobs);
    },
    async callScenarioJob({ handle, id, method, args, token }) {
      const target = object(handle);
      const job = target.jobs.get(id) || (await Job.fromId(target.made, id));
      if (!job) throw new Error(`job ${id} is not there`);
      return shown(await job[method](...filled(args, job, token)), target.jobs);
    },
    async toldScenario({ handle }) {
      return object(handle).told;
    },
  };
};
