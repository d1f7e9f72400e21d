"""The page about typed jobs, as it is written: its programs run, and print what it says."""

from pathlib import Path

from tests.docs.pages import Page, Terminal

PAGE = Page("docs/how-to/typed-jobs.md")


def test_the_page_runs_as_it_is_written(tmp_path: Path, url: str) -> None:
    assert {kind for kind, _ in PAGE.blocks} <= {"python", "console"}, "no other block would be run"
    PAGE.unpack(tmp_path)
    terminal = Terminal(tmp_path, url)
    try:
        for block in PAGE.consoles():
            for command in block:
                terminal.run(command)
        terminal.close()
    finally:
        terminal.kill()
