"""An app whose handlers read the results of their children in processes, which import this module."""

from corral import Corral, JobContext, SyncJobContext

app = Corral("redis://unused:1")


@app.job(queue="flow")
async def number(n: int) -> int:
    return n


@app.job(queue="flow", process=True)
def collect(job: SyncJobContext) -> list[int]:
    return job.children_results(number)


@app.job(queue="flow", process=True)
async def collect_async(job: JobContext) -> list[int]:
    return await job.children_results(number)
