"""The page about narrow users lists the commands that are really sent, and no others."""

import re
from pathlib import Path

from tests.servers.matrix.kinds import documented_rules
from tests.support.servers import Server

SOURCE = Path(__file__).resolve().parents[2] / "src" / "corral"
NOT_SENT = ("store/cluster.py", "store/errors.py", "cli/", "doctor/", "gateway/", "spark/")
"""Words there that are a server's too: tables, errors, and methods of HTTP."""
WITH_A_ROW = ("durability.py", "migrate/")
"""What few use has a row of the page's table."""
BEFORE_ANY_RULE = {"auth"}


def test_the_page_lists_what_is_sent_and_nothing_else(server: Server) -> None:
    with server.connect() as client:
        known = {name.decode().lower() for name in client.execute_command("COMMAND LIST")}
    sent = {"asking", "cluster"}  # by store/cluster.py, beside its tables
    for file in (*SOURCE.rglob("*.py"), *SOURCE.rglob("*.lua")):
        if not str(file.relative_to(SOURCE)).startswith((*NOT_SENT, *WITH_A_ROW)):
            sent |= {word.lower() for word in re.findall(r"[\"']([A-Z]{2,})[\"']", file.read_text())}
    rules = {*documented_rules(), *documented_rules("Sentinel"), *documented_rules("Cluster")}
    listed = {rule[1:].partition("|")[0] for rule in rules if rule.startswith("+")}
    sent.discard("memory")  # for `corral doctor` alone, which has a row of its own
    assert (sent & known) - BEFORE_ANY_RULE == listed, "docs/how-to/acl.md is not what the scripts need"
