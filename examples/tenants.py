"""Texts of many tenants are measured in batches, and no tenant waits for another's thousands.

corral worker tenants:app &
python tenants.py
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from corral import Corral, JobOutcome, Unrecoverable

app = Corral()


@dataclass
class Text:
    tenant: str
    text: str


@app.job(queue="texts", batch=64, linger=timedelta(milliseconds=20))
async def measure(texts: list[Text]) -> list[JobOutcome[int]]:
    """One call for up to 64 jobs; a text that is empty fails its own job, and no other."""
    return [len(text.text) if text.text else Unrecoverable("there is no text") for text in texts]


async def main() -> None:
    async with app:
        large = measure.options(group="large")
        await large.add_many([Text("large", "x" * n) for n in range(1, 1001)])
        small = measure.options(group="small")
        handles = await small.add_many([Text("small", word) for word in ("three", "short", "words")])
        print([await handle.result(timeout=30) for handle in handles])


if __name__ == "__main__":
    asyncio.run(main())
