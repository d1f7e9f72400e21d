"""The BridgeMQ room in the arena: its jobs, and what it wrote down about them."""

import json
from collections.abc import Mapping
from typing import Any

import redis

from tests.support.chaos_arena import Arena, Served
from tests.support.chaos_ledger import PAGE, UNTRIMMED, Story

ENDLESS = 1_000_000


class BridgeArena(Arena):
    """Jobs that may be found abandoned as often as it takes: here that spends an attempt."""

    def __init__(self, server: Served) -> None:
        super().__init__(server, "bridgemq")
        with server.connect() as client:
            client.set("bridge:events:kept", UNTRIMMED)

    async def add(self, count: int, options: dict[str, Any] | None = None, **data: Any) -> list[str]:
        return await super().add(count, {"attempts": ENDLESS, "backoff": "custom", **(options or {})}, **data)

    def stories(self) -> dict[str, Story]:
        with self.server.connect() as client:
            stories = {job_id: Story() for job_id in self.numbers}
            _hear(client, stories)
            _look(client, stories)
            return stories

    def assert_each_completed_once(self) -> dict[str, Story]:
        stories = self.stories()
        assert stories.keys() == self.numbers.keys(), "the events speak of jobs that were never added"
        wrong = {job_id: story for job_id, story in stories.items() if not self._is_whole(job_id, story)}
        assert not wrong, f"{len(wrong)} of {len(stories)} jobs: {dict(list(wrong.items())[:5])}"
        with self.server.connect() as client:
            assert leftovers(client) == {}
        return stories


def leftovers(client: redis.Redis) -> dict[str, int]:
    """What is still listed, held, locked or counted; empty where everything has ended."""
    counts = {
        "waiting": client.llen("bridge:jobs:waiting"),
        "active": client.scard("bridge:jobs:active"),
        "delayed": client.zcard("bridge:jobs:delayed"),
        "dead": client.llen("bridge:jobs:deadletter"),
        "holders": client.hlen("bridge:jobs:holders"),
    }
    for name in ("jobs:lock", "jobs:data", "jobs:attempts", "jobs:failure", "ratelimit:concurrent"):
        counts[name] = sum(1 for _ in client.scan_iter(f"bridge:{name}:*", count=PAGE))
    return {name: count for name, count in counts.items() if count}


def _hear(client: redis.Redis, stories: dict[str, Story]) -> None:
    after = "-"
    while entries := client.xrange("bridge:events", after, "+", PAGE):
        after = f"({entries[-1][0].decode()}"
        for _, fields in entries:
            if job_id := fields.get(b"jobId", b"").decode():
                _hear_one(stories.setdefault(job_id, Story()), fields)


def _hear_one(story: Story, fields: Mapping[bytes, bytes]) -> None:
    match fields[b"event"]:
        case b"active":
            story.starts += 1
        case b"completed":
            story.completions += 1
        case b"dead":
            story.deaths += 1
        case b"retry":
            story.put_backs += 1
        case b"waiting" | b"delayed" if fields.get(b"prev") == b"active":
            story.put_backs += 1
        case b"stalled":
            story.put_backs += 1
            story.recoveries += 1


def _look(client: redis.Redis, stories: dict[str, Story]) -> None:
    ids = list(stories)
    for start in range(0, len(ids), PAGE):
        page = ids[start : start + PAGE]
        pipeline = client.pipeline(transaction=False)
        for job_id in page:
            pipeline.mget(
                *(f"bridge:jobs:{part}:{job_id}" for part in ("status", "result", "summary", "fence"))
            )
        for job_id, (status, result, summary, fence) in zip(page, pipeline.execute(), strict=True):
            story = stories[job_id]
            story.state = (status or b"not there").decode()
            story.result = json.loads(result)["data"] if result else None
            # what was found abandoned spent an attempt too; here only those that ended by themselves count
            story.attempts = (json.loads(summary)["attempt"] if summary else 0) - story.recoveries
            assert int(fence or 0) == story.starts, (job_id, story)
