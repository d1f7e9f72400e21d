"""`corral doctor` on servers that are well, and on servers made wrong on purpose."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corral.cli.doctor.clock import judge_clock
from corral.cli.doctor.node import check_version
from tests.cli.conftest import AppQueue, Shell
from tests.servers.matrix.kinds import documented_rules
from tests.support.cluster import ClusterServer, cluster_of
from tests.support.proxy import Command, Link, Proxy
from tests.support.servers import Server, free_port, start_valkey


def examine(shell: Shell, *words: str, code: int) -> dict[str, list[Any]]:
    """The findings by what was checked."""
    said = shell("doctor", "--json", *words)
    assert (said.code, said.err) == (code, ""), said
    found: dict[str, list[Any]] = {}
    for finding in said.documents:
        found.setdefault(finding["check"], []).append(finding)
    return found


def levels(found: dict[str, list[Any]], check: str) -> set[str]:
    return {finding["level"] for finding in found[check]}


@pytest.fixture
def healthy(server: Server) -> Iterator[Server]:
    """A server that keeps what it is given."""
    wanted = {"appendonly": "yes", "maxmemory": "1gb"}
    with server.connect() as client:
        for name, value in wanted.items():
            client.config_set(name, value)
        yield server
        client.config_set("appendonly", "no")
        client.config_set("maxmemory-policy", "noeviction")


def test_a_healthy_server_has_nothing_to_mend(
    healthy: Server, shell: Shell, app_queues: Callable[[str], AppQueue]
) -> None:
    for protocol in ("bullmq", "streams", "bridgemq"):
        app_queues(protocol).work({}, {"fail": "x"})
    found = examine(shell, "--port", str(free_port()), code=0)
    for check in ("version", "persistence", "eviction", "memory", "clients", "clock", "scripts", "cluster",
                  "leaks", "ports"):  # fmt: skip
        assert levels(found, check) == {"fine"}, found[check]
    assert "java" in found
    said = shell("doctor", "--port", str(free_port()))
    assert said.code == 0
    assert said.out.splitlines()[-1] == f"nothing to mend at {healthy.url}"


def test_a_server_that_evicts_is_to_be_mended(healthy: Server, shell: Shell) -> None:
    with healthy.connect() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    [finding] = examine(shell, code=1)["eviction"]
    assert finding["level"] == "mend"
    assert "allkeys-lru" in finding["finding"]
    assert "CONFIG SET maxmemory-policy noeviction" in finding["mend"]
    said = shell("doctor")
    assert said.code == 1
    assert "-> CONFIG SET maxmemory-policy" in said.out
    assert said.out.splitlines()[-1].startswith("1 to mend at")


def test_a_server_that_keeps_nothing_is_to_be_mended(server: Server, shell: Shell) -> None:
    [finding] = examine(shell, code=1)["persistence"]
    assert (finding["level"], "a restart loses every job" in finding["finding"]) == ("mend", True)
    assert "appendonly yes" in finding["mend"]
    with server.connect() as client:
        client.config_set("save", "3600 1")
        try:
            [finding] = examine(shell, code=1)["persistence"]
            assert "since the last one" in finding["finding"]
        finally:
            client.config_set("save", "")


def test_a_full_server_is_to_be_mended(healthy: Server, shell: Shell) -> None:
    with healthy.connect() as client:
        for number in range(100):  # in small pieces: the buffer of a large one counts too, and goes again
            client.set(f"filler-{number}", "x" * 40_000)
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", int(used * 1.1))
        [finding] = examine(shell, code=1)["memory"]
        client.config_set("maxmemory", "1gb")
    assert (finding["level"], "its limit" in finding["finding"]) == ("mend", True)


def test_locks_of_jobs_that_nobody_works_on_are_told(
    healthy: Server, shell: Shell, app_queues: Callable[[str], AppQueue]
) -> None:
    [waiting] = app_queues("bullmq").add({})
    [routed] = app_queues("bridgemq").add({})
    with healthy.connect() as client:
        client.set(f"bull:mail:{waiting}:lock", "somebody")
        client.set(f"bridge:jobs:lock:{routed}", "somebody")
        client.set("bridge:ratelimit:concurrent:send", 3)
    found = examine(shell, code=1)
    told = " ".join(finding["finding"] for finding in found["locks"])
    assert levels(found, "locks") == {"mend"}
    assert f"job '{waiting}' of queue 'mail' of protocol 'bullmq' has a lock, but is not active" in told
    assert f"job '{routed}' of queue 'mail' of protocol 'bridgemq' has a lock" in told
    [counter] = found["counters"]
    assert "counts 3 active jobs, and there are 0" in counter["finding"]
    assert "leaks" not in found
    only = examine(shell, "--protocol", "streams", code=0)
    assert levels(only, "leaks") == {"fine"}


def test_jobs_that_wait_for_nobody_are_noted(
    healthy: Server, shell: Shell, app_queues: Callable[[str], AppQueue]
) -> None:
    app_queues("bullmq").add({}, {})
    [finding] = examine(shell, code=0)["queues"]
    assert (finding["level"], finding["mend"]) == ("note", "corral worker MODULE:APP")
    assert "2 jobs wait" in finding["finding"]
    assert shell("queue", "pause", "mail").code == 0
    [finding] = examine(shell, code=0)["queues"]
    assert finding["mend"] == "corral queue resume mail --protocol bullmq"


def test_many_scripts_and_a_taken_port_are_noted(healthy: Server, shell: Shell) -> None:
    with healthy.connect() as client:
        for number in range(501):
            client.script_load(f"return {number}")
        found = examine(shell, "--port", str(healthy.port), code=0)
        client.script_flush()
    assert levels(found, "scripts") == levels(found, "ports") == {"note"}


def test_a_user_that_may_not_run_scripts_is_told(healthy: Server, shell: Shell) -> None:
    with healthy.connect() as client:
        client.execute_command(
            "ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-@scripting"
        )
        try:
            where = f"redis://reader:secret@127.0.0.1:{healthy.port}"
            found = examine(shell, "--url", where, "--protocol", "streams", code=1)
            client.execute_command("ACL", "SETUSER", "reader", "-info")
            refused = examine(shell, "--url", where, "--protocol", "streams", code=1)
        finally:
            client.execute_command("ACL", "DELUSER", "reader")
    assert levels(found, "scripts") == {"mend"}
    assert "INFO is refused" in refused["access"][0]["finding"]
    assert "secret" not in str(found) + str(refused)


def test_what_a_user_may_not_see_is_told_and_the_rest_is_looked_at(healthy: Server, shell: Shell) -> None:
    with healthy.connect() as client:
        client.execute_command("ACL", "SETUSER", "corral", *documented_rules(), "+info")
        where = f"redis://corral:secret@127.0.0.1:{healthy.port}"
        try:
            found = examine(shell, "--url", where, code=0)
            client.execute_command("ACL", "SETUSER", "corral", "+time", "+config|get")
            seen = examine(shell, "--url", where, code=0)
        finally:
            client.execute_command("ACL", "DELUSER", "corral")
    [access] = found["access"]
    assert ("TIME is refused" in access["finding"], "+time" in access["mend"]) == (True, True)
    assert {"version", "persistence", "eviction", "memory", "scripts", "leaks"} <= found.keys()
    assert ("access" in seen, "clock" in seen) == (False, True)


def test_a_replica_and_a_cluster_without_slots_are_told(healthy: Server, shell: Shell) -> None:
    replica = start_valkey("--replicaof", f"127.0.0.1 {healthy.port}")
    cluster = start_valkey("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        found = examine(shell, "--url", replica.url, code=1)
        assert f"replica of 127.0.0.1:{healthy.port}" in found["role"][0]["finding"]
        found = examine(shell, "--url", cluster.url, code=1)
    finally:
        replica.stop()
        cluster.stop()
    assert "0 of 16384 slots" in found["cluster"][0]["finding"]
    assert levels(found, "cluster") == {"mend"}
    assert ["--namespace '{bridge}'" in finding["mend"] for finding in found["tags"]] == [False, True]


@pytest.mark.parametrize(("version", "level"), [("5.0.7", "mend"), ("6.2.1", "fine"), ("8.0.0", "fine")])
def test_an_old_server_is_told(version: str, level: str) -> None:
    [finding] = check_version({"redis_version": version})
    assert finding.level.value == level


# -- the clock ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "trip", "level"),
    [
        (0.0, 0.001, "fine"),
        (0.2, 0.001, "fine"),
        (-0.3, 0.001, "note"),
        (0.9, 0.001, "note"),
        (1.1, 0.001, "mend"),
        (-5.0, 0.001, "mend"),
        (0.4, 0.800, "fine"),
        (1.1, 0.800, "note"),
    ],
)
def test_a_clock_is_judged_by_what_is_sure_of_it(ahead: float, trip: float, level: str) -> None:
    asked, answered = 1000.0, 1000.0 + trip
    finding = judge_clock([(asked, asked + trip / 2 + ahead, answered)])
    assert finding.level.value == level
    assert f"{ahead * 1000:+.1f} ms from ours" in finding.told
    assert bool(finding.mend) == (level != "fine")


def test_the_quickest_answer_tells_the_time() -> None:
    slow, quick = (1000.0, 1004.9, 1005.0), (1010.0, 1010.0, 1010.002)
    assert judge_clock([slow, quick]).level.value == "fine"


class WrongClock(Proxy):
    """A server whose clock goes wrong by so many seconds."""

    def __init__(self, port: int, ahead: float) -> None:
        super().__init__(port)
        self.ahead = ahead

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await WrongClockLink(self, reader, writer).run(self._upstream)


class WrongClockLink(Link):
    async def _forward(self, command: Command) -> bool:
        if command[0] != b"TIME":
            return await super()._forward(command)
        assert isinstance(self._proxy, WrongClock)
        seconds = str(int(time.time() + self._proxy.ahead))
        self._writer.write(f"*2\r\n${len(seconds)}\r\n{seconds}\r\n$1\r\n0\r\n".encode())
        return True


@pytest.mark.parametrize("ahead", [7200.0, -90.0])
def test_a_server_with_a_wrong_clock_is_to_be_mended(healthy: Server, shell: Shell, ahead: float) -> None:
    with WrongClock(healthy.port, ahead) as proxy:
        found = examine(shell, "--url", proxy.url, code=1)
    [finding] = found["clock"]
    assert finding["level"] == "mend"
    told = float(finding["finding"].split(" is ")[1].split()[0])
    assert abs(told - ahead * 1000) < 1500, "whole seconds were told, and an answer takes its time"
    assert "NTP" in finding["mend"]
    assert [check for check in found if "mend" in levels(found, check)] == ["clock"]


# -- a cluster ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_masters() -> Iterator[ClusterServer]:
    with cluster_of(3, None, "--appendonly", "yes", "--maxmemory", "1gb") as cluster:
        yield cluster


def by_node(found: dict[str, list[Any]], check: str) -> dict[str, str]:
    return {finding["node"]: finding["level"] for finding in found[check]}


@pytest.mark.xdist_group("cluster")
def test_every_master_of_a_cluster_is_examined(three_masters: ClusterServer, shell: Shell) -> None:
    nodes = [f"127.0.0.1:{node.port}" for node in three_masters.nodes]
    where = ("--url", three_masters.url, "--protocol", "bullmq")
    found = examine(shell, *where, code=0)
    for check in ("version", "persistence", "eviction", "memory", "clients", "clock", "scripts", "cluster"):
        assert by_node(found, check) == dict.fromkeys(nodes, "fine"), found[check]
    [alone] = found["nodes"]
    assert (alone["level"], all(node in alone["finding"] for node in nodes)) == ("note", True)
    last, middle = three_masters.client(2), three_masters.client(1)
    try:
        last.config_set("maxmemory-policy", "allkeys-lru")
        middle.config_set("appendonly", "no")
        found = examine(shell, *where, code=1)
        assert by_node(found, "eviction") == {nodes[0]: "fine", nodes[1]: "fine", nodes[2]: "mend"}
        assert by_node(found, "persistence") == {nodes[0]: "fine", nodes[1]: "mend", nodes[2]: "fine"}
        said = shell("doctor", *where).out.splitlines()
    finally:
        last.config_set("maxmemory-policy", "noeviction")
        middle.config_set("appendonly", "yes")
    assert any(line.startswith("fine  version       all 3 masters: Valkey") for line in said), said
    assert any(line.startswith(f"mend  eviction      {nodes[2]}: maxmemory-policy is") for line in said), said
    assert said[-1].startswith("2 to mend at redis+cluster://")


@pytest.mark.xdist_group("cluster")
def test_a_user_of_a_cluster_with_few_rights_is_told_which_are_missing(
    three_masters: ClusterServer, shell: Shell
) -> None:
    for index in range(3):
        rules = [*documented_rules("Cluster"), "+info", "+time", "+config|get"]
        three_masters.client(index).execute_command("ACL", "SETUSER", "corral", *rules)
    url = three_masters.url.replace("://", "://corral:secret@")
    found = examine(shell, "--url", url, "--protocol", "bullmq", code=0)
    assert [("CLUSTER INFO" in finding["finding"], "+cluster|info" in finding["mend"])
            for finding in found["access"]] == [(True, True)] * 3  # fmt: skip
    assert len(found["version"]) == 3


@pytest.mark.xdist_group("cluster")
def test_what_is_left_behind_is_found_on_every_node(three_masters: ClusterServer, shell: Shell) -> None:
    three_masters.flush()
    where = ("--url", three_masters.url, "--protocol", "bullmq")
    queues = ["mail", "films", "sums", "letters"]
    for queue in queues:
        assert shell("queue", "add", queue, "send", *where).code == 0
        owner = three_masters.owner(f"{{{queue}}}")
        three_masters.client(owner).set(f"bull:{{{queue}}}:1:lock", "somebody")
    assert len({three_masters.owner(f"{{{queue}}}") for queue in queues}) > 1
    locks = examine(shell, *where, code=1)["locks"]
    assert len(locks) == len(queues)
    three_masters.flush()


@pytest.mark.xdist_group("cluster")
def test_a_master_that_is_gone_is_named_with_its_slots(shell: Shell) -> None:
    with cluster_of(3, None, "--appendonly", "yes", "--cluster-require-full-coverage", "no") as cluster:
        gone = cluster.nodes[1]
        gone.process.kill()
        gone.process.wait()
        found = examine(shell, "--url", cluster.url, "--protocol", "bullmq", code=1)
    [missing] = [finding for finding in found["nodes"] if finding.get("node") == f"127.0.0.1:{gone.port}"]
    assert (missing["level"], "does not answer" in missing["finding"]) == ("mend", True)
    assert "CLUSTER FAILOVER" in missing["mend"]
    assert len(found["version"]) == 2
