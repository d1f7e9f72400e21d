"""Hints: what to try when Redis refuses a command."""

from corral.errors import CorralError

_HINTS = {
    "NOAUTH": "the server requires a password: redis://:PASSWORD@host:port, or redis://USER:PASSWORD@host:port",
    "WRONGPASS": "the user or the password in the address is wrong; check --url or REDIS_URL",
    "NOPERM": "this user lacks a permission; grant it, or use another user in the address",
    "READONLY": "this server is a replica; connect to its primary (`corral doctor` names it)",
    "WRONGTYPE": "another program uses these key names; use --namespace, or another database",
    "DB index": "this server has fewer databases; end the address with a lower number, such as /0",
    "OOM": "the server's memory is full: `corral queue clean` deletes ended jobs; or raise maxmemory",
    "MISCONF": "the server cannot write to its disk: see its log, and `corral doctor`",
    "LOADING": "the server is loading its data; try again in a moment",
    "CLUSTERDOWN": "the cluster has slots that no node serves: `corral doctor` counts them",
    "BUSY": "a script blocks the server; try again in a moment",
    "rediss://": "for a server without TLS the address begins with redis://",
}


def add_hint(error: CorralError) -> None:
    """Add what to try to an error, where that is known.

    >>> error = CorralError("redis://h:6379: NOAUTH Authentication required.")
    >>> add_hint(error); error.__notes__[0][:38]
    'try: the server requires a password: r'
    """
    text = str(error)
    for word, hint in _HINTS.items():
        if f": {word}" in text or f" at {word}" in text or f"ERR {word}" in text:
            error.add_note(f"try: {hint}")
            return
    if text.startswith("no server at"):
        error.add_note(
            "try: --url URL for another one; without --url and REDIS_URL, a private server is used"
        )
