"""The pages about handlers and their jobs, as they are written: programs run, and print what they say."""

from pathlib import Path

import pytest

from tests.docs.pages import run_page

PAGES = ["typed-jobs", "unique", "flows", "batches", "groups"]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs_as_it_is_written(tmp_path: Path, url: str, name: str) -> None:
    run_page(f"docs/how-to/{name}.md", tmp_path, url)
