"""The document's own four scripts, whole, for clients of other languages: `python -m corral.protocols.bridgemq.shipping lua/`."""  # noqa: E501

import sys
from pathlib import Path

from corral.protocols.bridgemq.broker import SCRIPTS

SHIPPED = ("claim_job", "process_delayed", "process_cron", "release_lock")


def ship(folder: Path) -> list[Path]:
    """Write each script with the parts it uses into `folder`; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in SHIPPED:
        path = folder / f"{name}.lua"
        path.write_text(SCRIPTS[name].text)
        written.append(path)
    return written


if __name__ == "__main__":
    for path in ship(Path(sys.argv[1] if len(sys.argv) > 1 else "lua")):
        print(path)
