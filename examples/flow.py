"""A flow and a chain: `corral worker flow:app`, then `python flow.py`."""

import asyncio

from corral import Corral, JobContext

app = Corral()


@app.job
async def count_words(text: str) -> int:
    return len(text.split())


@app.job
async def total(job: JobContext) -> int:
    return sum(await job.children_results(count_words))


@app.job
async def announce(number: int, what: str = "words") -> str:
    return f"{number} {what}"


async def main() -> None:
    chapters = ["The cow", "jumped over", "the moon and came back"]
    book = app.flow(total.call(), children=[count_words.call(chapter) for chapter in chapters])
    async with app:
        handle = await book.then(announce).add()
        print(await handle.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
