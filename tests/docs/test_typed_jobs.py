"""The pages about handlers and their jobs, as they are written: programs run, and print what they say."""

from pathlib import Path

import pytest

from tests.docs.pages import Page, Terminal

PAGES = ["typed-jobs", "unique", "flows", "batches", "groups"]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs_as_it_is_written(tmp_path: Path, url: str, name: str) -> None:
    page = Page(f"docs/how-to/{name}.md")
    assert {kind for kind, _ in page.blocks} <= {"python", "console"}, "no other block would be run"
    page.unpack(tmp_path)
    terminal = Terminal(tmp_path, url)
    try:
        for block in page.consoles():
            for command in block:
                terminal.run(command)
        terminal.close()
    finally:
        terminal.kill()
