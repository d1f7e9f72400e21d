// A BullMQ worker in Node that takes part in a run: its processor does what each job's data says, and what
// it claims, renews and settles is written down.
//
//   node node_worker.mjs '{"name": …, "port": …, "queue": …, "concurrency": …, "lockMs": …, "recoverMs": …,
//                          "maxStalls": …, "folder": …}'
//
// It prints a line when it is at work, stops at SIGTERM, and ends with its parent, whose pipe is its stdin.

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { History, encodeValue } from '../checker/node.mjs'

const require = createRequire(join(process.env.CORRAL_NODE_MODULES, 'package.json'))
const { UnrecoverableError, Worker } = require('bullmq')
const IORedis = require('ioredis')

const order = JSON.parse(process.argv[2])
const { lockMs, queue } = order
const history = History.inFolder(order.folder, 'node-worker')
const WHOLE_MS = 2 // BullMQ counts whole milliseconds: a job may be due so much before its delay is over

const connection = new IORedis(order.port, '127.0.0.1', { maxRetriesPerRequest: null, retryStrategy: () => 50 })
let breaks = 0 // ioredis sends a request again whose answer was lost, so that a refusal may be of the second
connection.on('close', () => (breaks += 1))
connection.on('error', () => {})

/** When each job was requested at the latest, the jobs that have started, and the attempts that run. */
const requestedAt = new WeakMap()
const started = new WeakSet()
const running = new Map()

const attemptOf = (job, token) => ({ queue, job: job.id, receipt: `${token}/${job.attemptsStarted}` })
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function work(job) {
  const { data } = job
  if (data.reports) await job.updateProgress(50)
  await sleep(data.ms ?? 1)
  if (data.dies) throw new UnrecoverableError('as its data says')
  if (job.attemptsMade + 1 <= (data.fails ?? 0)) throw new Error('as its data says')
  return data.value
}

async function processor(job, token) {
  const of = attemptOf(job, token)
  const requested_at = requestedAt.get(job)
  started.add(job)
  running.set(`${job.id} ${token}`, of)
  history.write({
    kind: 'start', ...of, worker: order.name, attempt: job.attemptsMade + 1, requested_at,
    lock_until: requested_at + lockMs, group: job.name, tag: job.data.tag,
  })
  try {
    const value = { value: await work(job), by: of.receipt }
    history.write({ kind: 'end', ...of, outcome: 'returned', value: encodeValue(JSON.stringify(value)) })
    return value
  } catch (error) {
    history.write({ kind: 'end', ...of, outcome: 'raised', error: String(error) })
    throw error
  } finally {
    running.delete(`${job.id} ${token}`)
  }
}

const worker = new Worker(queue, processor, {
  connection, autorun: false, concurrency: order.concurrency, lockDuration: lockMs, lockRenewTime: lockMs / 2,
  stalledInterval: order.recoverMs, maxStalledCount: order.maxStalls, runRetryDelay: 50,
  settings: { backoffStrategy: () => 0 },
})
worker.on('error', () => {})

/** Replaces a method by one that is given the original, bound. */
const wrap = (name, method) => (worker[name] = method.bind(null, worker[name].bind(worker)))

async function claim(request) {
  const sentAt = history.clock()
  const job = await request()
  if (job) requestedAt.set(job, sentAt)
  return job
}

async function settle(job, token, outcome, request) {
  if (worker.connection.closing) return request()
  const breaksBefore = breaks
  const record = { kind: 'settled', ...attemptOf(job, token), outcome }
  const write = fields => started.has(job) && history.write({ ...record, ...fields })
  try {
    const following = await claim(request)
    write({ verdict: 'applied', delay: outcome === 'retry' ? Math.max(job.delay - WHOLE_MS, 0) : 0 })
    return following
  } catch (error) {
    write({ verdict: error.code < 0 && breaks === breaksBefore ? 'refused' : 'unknown' })
    throw error
  }
}

wrap('moveToActive', (request, ...rest) => claim(() => request(...rest)))
wrap('handleCompleted', (request, value, job, token, ...rest) =>
  settle(job, token, 'completed', () => request(value, job, token, ...rest)))
wrap('handleFailed', (request, error, job, token, ...rest) => {
  const isDead = error instanceof UnrecoverableError || job.attemptsMade + 1 >= job.opts.attempts
  return settle(job, token, isDead ? 'dead' : 'retry', () => request(error, job, token, ...rest))
})

const { scripts } = worker
const extendLocks = scripts.extendLocks.bind(scripts)
scripts.extendLocks = async (ids, tokens, duration) => {
  const until = history.clock() + duration
  const lost = await extendLocks(ids, tokens, duration)
  ids.forEach((id, n) => {
    const of = running.get(`${id} ${tokens[n]}`)
    if (of) history.write(lost.includes(id) ? { kind: 'lost', ...of } : { kind: 'extended', ...of, until })
  })
  return lost
}

process.stdin.on('end', () => process.exit()).resume()
process.on('SIGTERM', () => worker.close().then(() => process.exit()))
await worker.waitUntilReady()
worker.run()
console.log('ready')
