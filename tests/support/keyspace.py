"""A queue's whole keyspace, taken in one atomic look."""

from dataclasses import dataclass
from typing import Any

import redis

_LOOK = """
local seen = {}
for _, prefix in ipairs(ARGV) do
  for _, key in ipairs(redis.call('KEYS', '*')) do
    if string.sub(key, 1, #prefix) == prefix then
      local kind = redis.call('TYPE', key).ok
      local value
      if kind == 'hash' then value = redis.call('HGETALL', key)
      elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
      elseif kind == 'set' then value = redis.call('SMEMBERS', key)
      elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
      elseif kind == 'stream' then value = redis.call('XRANGE', key, '-', '+')
      else value = redis.call('GET', key) end
      seen[#seen + 1] = {prefix, string.sub(key, #prefix + 1), kind, redis.call('PTTL', key), value}
    end
  end
end
return seen
"""


@dataclass(frozen=True)
class Entry:
    """One key: its type, its value in a shape of its own, and its time to live in ms (None: for ever).

    hash: dict · list: list · set: sorted list · zset: list of (member, score) in order ·
    stream: list of (id, list of (field, value)) · string: bytes
    """

    kind: str
    value: Any
    ttl: int | None = None


Keyspace = dict[str, Entry]
"""Names without the queue's prefix -> what is there."""


def look(client: redis.Redis, *prefixes: str) -> list[Keyspace]:
    """What lies under each prefix (`bull:mail:`), all of it seen at the same moment."""
    spaces: dict[str, Keyspace] = {prefix: {} for prefix in prefixes}
    answer: Any = client.eval(_LOOK, 0, *prefixes)
    for prefix, name, kind, ttl, value in answer:
        shape = kind.decode()
        entry = Entry(shape, _shaped(shape, value), ttl if ttl >= 0 else None)
        spaces[prefix.decode()][name.decode()] = entry
    return [spaces[prefix] for prefix in prefixes]


def _shaped(kind: str, value: Any) -> Any:
    match kind:
        case "hash":
            return {field.decode(): given for field, given in _pairs(value)}
        case "set":
            return sorted(value)
        case "zset":
            return [(member, float(score)) for member, score in _pairs(value)]
        case "stream":
            return [(number.decode(), [(field.decode(), given) for field, given in _pairs(fields)])
                    for number, fields in value]  # fmt: skip
    return value


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
