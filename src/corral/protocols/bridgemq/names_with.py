"""Find keys by what their names begin with."""

from corral.store.client import Store


async def names_with(store: Store, prefix: str) -> list[bytes]:
    """Names of the keys that begin so, in order."""
    literal = "".join(f"\\{char}" if char in "*?[]\\^" else char for char in prefix)
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, names = await store.call("SCAN", cursor, "MATCH", f"{literal}*", "COUNT", 1000)
        found.update(names)
        if cursor == b"0":
            return sorted(found)
