"""A FastAPI app that adds jobs, shows their state, and streams the events of a job.

pip install 'corral[gateway]'
uvicorn fastapi_app:api                    # in one terminal
corral worker fastapi_app:app              # in another
curl -X POST localhost:8000/signups -H 'Content-Type: application/json' -d '{"email": "ada@example.com"}'
curl localhost:8000/signups/1
curl -N localhost:8000/signups/1/events
"""

import asyncio
import json
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from corral import Corral, JobContext

app = Corral()
ENDS = ("completed", "dead", "cancelled")


class Signup(BaseModel):
    email: str


@app.job(queue="signups", attempts=5)
async def welcome(job: JobContext, signup: Signup) -> dict[str, str]:
    for percent in (50, 100):
        await asyncio.sleep(0.1)
        await job.progress(percent)
    return {"welcomed": signup.email}


@asynccontextmanager
async def lifespan(_: FastAPI):
    async with app:  # closes its connections when the server stops
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/signups", status_code=202)
async def sign_up(signup: Signup) -> dict:
    job = await welcome.add(signup)
    return {"id": job.id}


@api.get("/signups/{job_id}")
async def show(job_id: str) -> dict:
    job = await welcome.queue.job(job_id)
    if job is None:
        raise HTTPException(404, "no such signup")
    return {"id": job.id, "state": job.state, "progress": job.progress, "result": job.result}


@api.get("/signups/{job_id}/events")
async def events(job_id: str) -> StreamingResponse:
    job = await welcome.queue.job(job_id)
    if job is None:
        raise HTTPException(404, "no such signup")

    async def stream():
        async for event in welcome.queue.events.tail(f"{max(job.created_at - 5000, 0)}-0"):
            if event.job_id == job_id:
                yield f"event: {event.kind}\ndata: {json.dumps(event.data)}\n\n"
                if event.kind in ENDS:
                    return

    return StreamingResponse(stream(), media_type="text/event-stream")
