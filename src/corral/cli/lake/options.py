"""Options of the commands of a lake, and what they stand for."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from corral.cli.session import Session
from corral.errors import InvalidOptions
from corral.protocols.base import Protocol

if TYPE_CHECKING:
    from corral.spark.lake.tables import Lake
    from corral.spark.options import QueueAddress

LakeArgument = Annotated[
    str, Argument(metavar="LAKE", help="The lake's folder or URL (s3://bucket/path).", show_default=False)
]
QueueOption = Annotated[str, Option("--queue", "-q", help="Queues, comma separated, or a pattern with *.")]

StorageOption = Annotated[
    list[str] | None,
    Option("--storage", metavar="KEY=VALUE", help="An option of the object storage; repeatable."),
]
AsOfOption = Annotated[
    str | None, Option("--as-of", metavar="TIME", help="The lake as it was then; default: now.")
]


async def addresses_of(session: Session, queue: str, is_waiting: bool = False) -> "list[QueueAddress]":
    """Return the queues as Spark's readers address them, per protocol; without events only `is_waiting`."""
    from corral.spark.options import QueueAddress

    namespace = session.options.namespace
    addresses = [
        QueueAddress(
            session.app.url,
            protocol.spec.name,
            protocol.spec.default_namespace if namespace is None else namespace,
            queue,
        )
        for protocol in session.protocols
        if is_waiting or await _has_events(session, protocol)
    ]
    if not addresses:
        names = " or ".join(protocol.spec.name for protocol in session.protocols)
        raise InvalidOptions(
            f"no events in protocol {names} at {session.address}; there is nothing to read yet"
        )
    return addresses


async def _has_events(session: Session, protocol: Protocol) -> bool:
    extents = [await queue.events.extent() for queue in await session.app.queues(protocol.spec.name)]
    return any(extent.length or extent.added for extent in extents)


def lake_at(path: str, storage: list[str] | None = None, as_of: str | None = None) -> "Lake":
    """Return the lake in a folder or at a URL, whether it exists or not."""
    from corral.spark.lake.tables import Lake

    options = {}
    for option in storage or ():
        key, separator, value = option.partition("=")
        if not separator or not key:
            raise InvalidOptions(f"--storage is {option!a}; use one such as AWS_REGION=eu-central-1")
        options[key] = value
    return Lake(path, options, parse_time("--as-of", as_of))


def existing_lake(path: str, storage: list[str] | None = None, as_of: str | None = None) -> "Lake":
    """Return the lake there; refused where there is none."""
    lake = lake_at(path, storage, as_of)
    if not lake.exists:
        raise InvalidOptions(f"there is no lake in {lake.path}; make one: corral lake run {path}")
    return lake


def parse_time(option: str, text: str | None) -> datetime | None:
    """Parse the time that an option names; UTC where it names no zone."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOptions(f"{option} is {text!a}; use a time such as 2025-01-31T12:00:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
