"""Pages as their readers use them: programs are written to files, commands are typed at a shell."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from corral.cli import LateCommand, root

HOME = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"# ([\w.@-]+)(, continued)?\n")
LONG_RUNNING = ("corral worker", "corral gateway", "corral events tail")
"""Commands that run until a signal stops them."""


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command by its words."""
    for name, command in group.commands.items():
        if isinstance(command, LateCommand):
            command = command.load()
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name), command


COMMANDS = dict(commands(typer.main.get_command(root)))
"""Every command there is, by its words."""


@dataclass
class PageCommand:
    """A command of a page, and the output that the page shows."""

    command: str
    output: list[str]


@dataclass
class Page:
    """One page of the documentation."""

    path: str
    blocks: list[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = [(kind, body) for kind, body in _BLOCK.findall((HOME / self.path).read_text())]

    def unpack(self, folder: Path, kind: str = "python") -> list[str]:
        """Write the programs of the page into a folder; their names in order."""
        names: list[str] = []
        for block, body in self.blocks:
            if block != kind:
                continue
            head = _HEAD.match(body)
            assert head is not None, f"{self.path}: a block does not say which file it is:\n{body[:200]}"
            name, is_continued = head.groups()
            with (folder / name).open("a" if is_continued else "x") as file:
                file.write(body[head.end() :])
            if name not in names:
                names.append(name)
        return names

    def consoles(self) -> list[list[PageCommand]]:
        """What is typed, block by block."""
        found = []
        for kind, body in self.blocks:
            if kind != "console":
                continue
            typed: list[PageCommand] = []
            for line in body.splitlines():
                if line.startswith("$ "):
                    typed.append(PageCommand(line[2:], []))
                else:
                    typed[-1].output.append(line)
            found.append(typed)
        return found


def run_page(path: str, folder: Path, url: str) -> None:
    """Write the programs of a page into a folder, type its commands, and hold what they print against it."""
    page = Page(path)
    assert {kind for kind, _ in page.blocks} <= {"python", "console"}, "no other block would be run"
    page.unpack(folder)
    terminal = Terminal(folder, url)
    try:
        for block in page.consoles():
            for command in block:
                terminal.run(command)
        terminal.close()
    finally:
        terminal.kill()


class Terminal:
    """A shell in a folder; what goes on for long goes on until the end."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        beside = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ, "REDIS_URL": url, "PATH": f"{beside}:{os.environ['PATH']}", "COLUMNS": "200",
        }  # fmt: skip
        self._running: list[tuple[str, subprocess.Popen[str]]] = []

    def run(self, typed: PageCommand) -> None:
        """Type a command, and hold what it prints against the page."""
        if typed.command.startswith(LONG_RUNNING) and "--burst" not in typed.command:
            self._running.append((typed.command, self._start(typed.command)))
            return
        process = self._start(typed.command)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, f"{typed.command}: {err}{out}"
        _compare(typed, out)

    def _start(self, command: str) -> "subprocess.Popen[str]":
        # a group of its own, so that a signal reaches what the shell has started, as Ctrl-C does
        return subprocess.Popen(
            command, shell=True, cwd=self._folder, env=self._environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def close(self) -> None:
        """Ctrl-C for whatever goes on; it ends well."""
        for command, process in self._running:
            assert process.poll() is None, f"{command} has ended: {process.communicate()}"
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
            assert process.returncode in (0, 130, -signal.SIGINT), f"{command}: {err}{out}"
        self._running.clear()

    def kill(self) -> None:
        """End whatever is left."""
        for _, process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _compare(typed: PageCommand, out: str) -> None:
    """Each line of the page is there, in order; `…` stands for anything."""
    if not typed.output:
        return
    patterns = [".*".join(map(re.escape, line.rstrip().split("…"))) for line in typed.output]
    wanted = re.compile("\n".join(patterns), re.DOTALL)
    said = "\n".join(line.rstrip() for line in out.splitlines())
    page = "\n".join(typed.output)
    assert wanted.fullmatch(said), f"{typed.command} said:\n{said}\nand the page says:\n{page}"
