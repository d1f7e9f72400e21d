"""Load a protocol's Lua verbs from its lua/ folder."""

import re
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable

_USE = re.compile(r"^ *-- use (\w+)$", re.MULTILINE)


class Script:
    """One Lua verb: its text with the parts it uses, and the hash the server knows it by."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"Script({self.name!r})"


class Scripts:
    """The verbs of one protocol, read once: `Scripts("corral.protocols.bullmq")["turn"]`.

    A line `-- use parts` in a verb is replaced by `lua/parts/parts.lua`, once; each begins with `preamble`.
    Within a block of few jobs a part costs the others nothing: a server makes all functions of a script anew
    for each call.
    """

    def __init__(self, package: str, preamble: str = "") -> None:
        self._folder = files(package) / "lua"
        self._preamble = preamble
        self._loaded: dict[str, Script] = {}

    def __getitem__(self, verb: str) -> Script:
        if verb not in self._loaded:
            text = (self._folder / f"{verb}.lua").read_text()
            self._loaded[verb] = Script(verb, self._preamble + _expand(text, self._folder, set()))
        return self._loaded[verb]


def _expand(text: str, folder: Traversable, seen: set[str]) -> str:
    def part(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return _expand((folder / "parts" / f"{name}.lua").read_text(), folder, seen)

    return _USE.sub(part, text)
