// Writes a history in the format of README.md from Node, without dependencies.
//
//   import { History } from './node.mjs'
//   const history = History.inFolder('/tmp/run-1', 'node-worker')
//   history.write({ kind: 'start', queue: 'mail', job: job.id, receipt: token, worker: 'node-1' })
//   const op = history.invoke('add', 'mail', { jobs: [{ id: '7' }] })
//   history.ok(op, { ids: ['7'] })

import { closeSync, fstatSync, mkdirSync, openSync, readSync, writeSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'

const FORMAT = 1
let names = 0
let origin = performance.timeOrigin

/** The time in milliseconds since 1970, with a fraction; it follows the system clock when that is set. */
export function wallClockMs() {
  const now = performance.now()
  const wall = Date.now()
  if (Math.abs(wall - origin - now) > 2) origin = wall - now
  return origin + now
}

/** The bytes of a result as the string that stands in a record; a string is taken as UTF-8. */
export function encodeValue(value) {
  return Buffer.from(value).toString('base64')
}

/** Appends records to a file, each with one write call; a killed process leaves at most one incomplete line. */
export class History {
  constructor(path, role, { process: name, clock = wallClockMs } = {}) {
    this.process = name ?? `${role}-${hostname()}-${process.pid}-${names++}-${Date.now().toString(16)}`
    this.path = path
    this.clock = clock
    this.seq = 0
    this.last = 0
    this.operations = 0
    this.file = openSync(path, 'a+')
    const { size } = fstatSync(this.file)
    const end = Buffer.alloc(1)
    if (size > 0 && readSync(this.file, end, 0, 1, size - 1) === 1 && end[0] !== 0x0a) writeSync(this.file, '\n')
    this.write({ kind: 'process', role, format: FORMAT, pid: process.pid, host: hostname() })
  }

  /** Opens a new file in the folder; its name is unique. */
  static inFolder(folder, role) {
    mkdirSync(folder, { recursive: true })
    return new History(join(folder, `${role}-${process.pid}-${names++}-${Date.now().toString(16)}.jsonl`), role)
  }

  /** Appends a record with time, process and number; fields that are undefined are left out. */
  write(record) {
    this.last = Math.max(this.last, record.at ?? this.clock())
    const line = Buffer.from(JSON.stringify({ ...record, at: this.last, process: this.process, seq: this.seq }) + '\n')
    if (writeSync(this.file, line) !== line.length) throw new Error(`${this.path} took only a part of a record`)
    this.seq += 1
  }

  /** Records a request that is about to be sent; the value is for `ok`, `refused` or `unknown`. */
  invoke(verb, queue, { jobs, ids } = {}) {
    const op = `${this.process}#${this.operations++}`
    this.write({ kind: 'invoke', op, verb, queue, jobs, ids })
    return op
  }

  ok(op, { ids, existed } = {}) {
    this.write({ kind: 'ok', op, ids, existed })
  }

  refused(op, reason) {
    this.write({ kind: 'refused', op, reason: String(reason) })
  }

  unknown(op, reason) {
    this.write({ kind: 'unknown', op, reason: String(reason) })
  }

  close() {
    closeSync(this.file)
  }
}
