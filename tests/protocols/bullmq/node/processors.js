// processors: what a real BullMQ worker does with a job, written as data so that a test can say it.
//
// A script is {"sleep": ms, "progress": […], "log": […], "fail": n, "message": text, "unrecoverable": bool,
// "delayBy": ms, "return": value, "echo": bool}; a job's own data.script wins over the worker's.
//   fail       throw in the first n attempts (-1: in every one)
//   delayBy    in its first start the job delays itself
//   echo       return {by: worker name, id, data}

const wait = ms => new Promise(resolve => setTimeout(resolve, ms));

exports.make = (given, { DelayedError, UnrecoverableError }) =>
  async function work(job, token) {
    const script = { ...given, ...(job.data && job.data.script) };
    for (const value of script.progress || []) await job.updateProgress(value);
    for (const line of script.log || []) await job.log(line);
    if (script.sleep) await wait(script.sleep);
    if (script.delayBy && job.attemptsStarted === 1) {
      await job.moveToDelayed(Date.now() + script.delayBy, token);
      throw new DelayedError();
    }
    if (script.fail === -1 || job.attemptsMade < (script.fail || 0)) {
      throw new (script.unrecoverable ? UnrecoverableError : Error)(script.message || 'as told');
    }
    if (script.echo) return { by: job.processedBy, id: job.id, data: job.data };
    return script.return;
  };
