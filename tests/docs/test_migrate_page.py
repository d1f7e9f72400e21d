"""The page about moving jobs does what it says."""

from pathlib import Path

from tests.docs.pages import Page, Terminal


def test_the_commands_of_the_page_print_what_it_says(tmp_path: Path, url: str) -> None:
    page = Page("docs/how-to/migrate.md")
    page.unpack(tmp_path)
    terminal = Terminal(tmp_path, url)
    for block in page.consoles():
        for typed in block:
            terminal.run(typed)
    terminal.close()
