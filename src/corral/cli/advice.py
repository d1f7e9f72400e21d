"""What to try when a server says no."""

from corral.errors import CorralError

_BY_WORD = {
    "NOAUTH": "the server wants a password: redis://:PASSWORD@host:port, or redis://USER:PASSWORD@host:port",
    "WRONGPASS": "the user or the password in the address is not the server's; check --url or REDIS_URL",
    "NOPERM": "this user lacks a right that is needed; ask for it, or use another user in the address",
    "READONLY": "this server is a replica; dial its primary (`corral doctor` names it)",
    "WRONGTYPE": "another program's keys stand under these names; use --namespace, or another database",
    "DB index": "this server has fewer databases; end the address with a lower number, such as /0",
    "OOM": "the server's memory is full: `corral queue clean` what has ended, or raise its maxmemory",
    "MISCONF": "the server cannot write to its disk: look into its log, and at `corral doctor`",
    "LOADING": "the server is reading its data back; try again in a moment",
    "CLUSTERDOWN": "the cluster has slots that nobody serves: `corral doctor` counts them",
    "BUSY": "a script holds the server; try again in a moment",
    "rediss://": "where the server speaks no TLS, the address begins with redis://",
}


def advise(error: CorralError) -> None:
    """Add what to try to an error, where that is known.

    >>> error = CorralError("redis://h:6379: NOAUTH Authentication required.")
    >>> advise(error); error.__notes__[0][:35]
    'try: the server wants a password: r'
    """
    text = str(error)
    for word, way_out in _BY_WORD.items():
        if f": {word}" in text or f" at {word}" in text or f"ERR {word}" in text:
            error.add_note(f"try: {way_out}")
            return
    if text.startswith("no server at"):
        error.add_note("try: --url URL names another; with neither that nor REDIS_URL, a private one is used")
