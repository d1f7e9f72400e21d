"""The bridgemq protocol: routing, cron, dead letters and rate limits on BridgeMQ v1's data model."""

from typing import TYPE_CHECKING

from corral.core.job import JobOptions
from corral.core.naming import check_job_name
from corral.protocols.base import Binding, ProtocolSpec
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, NAME
from corral.protocols.bridgemq.options import CAPABILITIES, LACKS, OPTIONS, check_options

if TYPE_CHECKING:
    from corral.protocols.bridgemq.ports import BridgemqPorts
    from corral.store.client import Store
    from corral.store.scripts import Script


def _document_scripts() -> "list[Script]":
    from corral.protocols.bridgemq.scripts import DOCUMENT_SCRIPTS, SCRIPTS

    return [SCRIPTS[name] for name in DOCUMENT_SCRIPTS]


class BridgemqProtocol:
    """The bridgemq protocol."""

    spec = ProtocolSpec(
        name=NAME,
        summary="BridgeMQ v1's data model: routing, cron, dead letters, rate limits",
        capabilities=CAPABILITIES,
        options=OPTIONS,
        default_queue=DEFAULT_QUEUE,
        default_namespace="bridge",
        promote_ms=1000,  # the document's scheduler looks every second
        priority="7 and above runs first",
        lacks=LACKS,
        client_scripts=_document_scripts,
    )

    def check(self, options: JobOptions, now: int) -> None:
        check_options(options, now)

    def check_name(self, name: str) -> str:
        return check_job_name(name)

    async def queues(self, store: "Store", namespace: str) -> list[str]:
        from corral.protocols.bridgemq.inspector import bridgemq_queues

        return await bridgemq_queues(store, namespace)

    def bind(self, binding: Binding) -> "BridgemqPorts":
        from corral.protocols.bridgemq.ports import BridgemqPorts

        return BridgemqPorts(binding)


PROTOCOL = BridgemqProtocol()
