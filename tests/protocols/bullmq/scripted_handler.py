"""Our own player of the scripts that tests/protocols/bullmq/node/processors.js plays."""

import asyncio
from typing import Any

from corral.errors import Transient, Unrecoverable


async def play(job: Any) -> Any:
    """Do what the job's data says, as Node's processor would."""
    script = job.data["script"]
    for value in script.get("progress", []):
        await job.progress(value)
    for line in script.get("log", []):
        await job.log(line)
    await asyncio.sleep(script.get("sleep", 0) / 1000)
    if script.get("fail") == -1 or job.attempt <= script.get("fail", 0):
        raise (Unrecoverable if script.get("unrecoverable") else Transient)(script["message"])
    return script.get("return")
