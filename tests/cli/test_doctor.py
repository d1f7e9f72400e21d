"""`corral doctor` on healthy servers, and on servers that were misconfigured on purpose."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corral import Corral
from corral.doctor.node import check_version, judge_clock
from tests.cli.conftest import AppQueue, Shell
from tests.servers.matrix.kinds import documented_rules
from tests.support.apps import working
from tests.support.cluster import ClusterServer, cluster_of
from tests.support.handlers import where_it_runs
from tests.support.polling import until
from tests.support.proxy import Command, Link, Proxy
from tests.support.servers import Server, free_port, start_valkey


def examine(shell: Shell, *words: str, code: int) -> dict[str, list[Any]]:
    """Return the findings by check."""
    result = shell("doctor", "--json", *words)
    assert (result.code, result.err) == (code, ""), result
    findings: dict[str, list[Any]] = {}
    for finding in result.documents:
        findings.setdefault(finding["check"], []).append(finding)
    return findings


def levels(findings: dict[str, list[Any]], check: str) -> set[str]:
    return {finding["level"] for finding in findings[check]}


@pytest.fixture
def healthy_server(server: Server) -> Iterator[Server]:
    """A server that keeps its data on disk."""
    settings = {"appendonly": "yes", "maxmemory": "1gb"}
    with server.connect() as client:
        for name, value in settings.items():
            client.config_set(name, value)
        yield server
        client.config_set("appendonly", "no")
        client.config_set("maxmemory-policy", "noeviction")


def test_a_healthy_server_has_nothing_to_mend(
    healthy_server: Server, shell: Shell, app_queues: Callable[[str], AppQueue]
) -> None:
    for protocol in ("bullmq", "streams", "bridgemq"):
        app_queues(protocol).work({}, {"fail": "x"})
    findings = examine(shell, "--port", str(free_port()), code=0)
    for check in ("version", "persistence", "eviction", "memory", "clients", "clock", "scripts", "cluster",
                  "leaks", "ports"):  # fmt: skip
        assert levels(findings, check) == {"fine"}, findings[check]
    assert "java" in findings
    result = shell("doctor", "--port", str(free_port()))
    assert result.code == 0
    assert result.out.splitlines()[-1] == f"nothing to mend at {healthy_server.url}"


def test_the_generation_of_a_queue_and_what_an_upgrade_left_behind(
    healthy_server: Server, shell: Shell
) -> None:
    assert shell("queue", "add", "mail", "send").code == 0
    assert shell("queue", "pause", "mail").code == 0
    with healthy_server.connect() as client:
        keys = examine(shell, "--port", str(free_port()), code=0)["keys"]
        assert [one["finding"] for one in keys] == ["queue 'mail': it is of BullMQ 5 (bullmq:5.62.0)"]
        client.hset("bull:mail:meta", "version", "bullmq:6.7.0")  # as Node 6 does
        client.zadd("bull:mail:repeat", {"tick:::UTC:* * * * *": 1})
        told, left, legacy = examine(shell, "--port", str(free_port()), code=1)["keys"]
        assert told["finding"] == "queue 'mail': it is of BullMQ 6 (bullmq:6.7.0)"
        assert left["finding"] == "1 jobs of queue 'mail' are in the list 'paused', where no worker looks"
        assert legacy["level"] == "mend"
        client.delete("bull:mail:repeat")
        assert shell(*left["mend"].split()[1:]).code == 0
        assert client.lrange("bull:mail:wait", 0, -1) == [b"1"]
        assert len(examine(shell, "--port", str(free_port()), code=0)["keys"]) == 1


async def test_names_without_a_handler_schedules_of_the_past_and_jobs_that_are_never_removed_are_found(
    healthy_server: Server, shell: Shell, url: str
) -> None:
    async with Corral(url) as app:
        app.job("sow", queue="farm")(where_it_runs)
        await app.schedule("plough", cron="0 0 1 1 *", queue="farm").start()
        await app.start_schedules()
        app._schedules.clear()  # as the next version of the program would have it
        await app.queue("farm").add("reap", {})
        await app.queue("farm").add_many([("sow", {})] * 1000)
        async with working(app, lock_ms=400):

            async def findings() -> dict[str, Any]:
                result = await asyncio.to_thread(shell, "doctor", "--json", "--port", str(free_port()))
                found = {finding["check"]: finding for finding in result.documents}
                return found if {"handlers", "kept", "schedules"} <= found.keys() else {}

            await until(findings, "the doctor finds them")
            found = await findings()
    finding, kept, schedules = (found[check] for check in ("handlers", "kept", "schedules"))
    assert re.search(r"keeps all of its 1,000 ended jobs, about \d{3,4} bytes each$", kept["finding"])
    assert schedules["finding"].endswith("do not declare any more: 'plough'")
    assert {kept["level"], schedules["level"], finding["level"]} == {"note", "mend"}
    assert "no worker of queue 'farm' of protocol 'bullmq'" in finding["finding"]
    assert finding["finding"].endswith("has a handler for its jobs called 'reap'")


def test_a_server_that_evicts_is_to_be_mended(healthy_server: Server, shell: Shell) -> None:
    with healthy_server.connect() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    [finding] = examine(shell, code=1)["eviction"]
    assert finding["level"] == "mend"
    assert "allkeys-lru" in finding["finding"]
    assert "CONFIG SET maxmemory-policy noeviction" in finding["mend"]
    result = shell("doctor")
    assert result.code == 1
    assert "-> CONFIG SET maxmemory-policy" in result.out
    assert result.out.splitlines()[-1].startswith("1 to mend at")


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


def test_a_full_server_is_to_be_mended(healthy_server: Server, shell: Shell) -> None:
    with healthy_server.connect() as client:
        for number in range(100):  # in small pieces: the buffer of a large one counts too, and goes again
            client.set(f"filler-{number}", "x" * 40_000)
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", int(used * 1.1))
        [finding] = examine(shell, code=1)["memory"]
        client.config_set("maxmemory", "1gb")
    assert (finding["level"], "its limit" in finding["finding"]) == ("mend", True)


def test_locks_of_jobs_that_are_not_active_are_reported(
    healthy_server: Server, shell: Shell, app_queues: Callable[[str], AppQueue]
) -> None:
    [waiting] = app_queues("bullmq").add({})
    [routed] = app_queues("bridgemq").add({})
    with healthy_server.connect() as client:
        client.set(f"bull:mail:{waiting}:lock", "somebody")
        client.set(f"bridge:jobs:lock:{routed}", "somebody")
        client.set("bridge:ratelimit:concurrent:send", 3)
    findings = examine(shell, code=1)
    text = " ".join(finding["finding"] for finding in findings["locks"])
    assert levels(findings, "locks") == {"mend"}
    assert f"job '{waiting}' of queue 'mail' of protocol 'bullmq' has a lock, but is not active" in text
    assert f"job '{routed}' of queue 'mail' of protocol 'bridgemq' has a lock" in text
    [counter] = findings["counters"]
    assert "counts 3 active jobs, and there are 0" in counter["finding"]
    assert "leaks" not in findings
    streams_only = examine(shell, "--protocol", "streams", code=0)
    assert levels(streams_only, "leaks") == {"fine"}


def test_jobs_that_wait_without_a_worker_are_noted(
    healthy_server: Server, shell: Shell, app_queues: Callable[[str], AppQueue]
) -> None:
    app_queues("bullmq").add({}, {})
    [finding] = examine(shell, code=0)["queues"]
    assert (finding["level"], finding["mend"]) == ("note", "corral worker MODULE:APP")
    assert "2 jobs wait" in finding["finding"]
    assert shell("queue", "pause", "mail").code == 0
    [finding] = examine(shell, code=0)["queues"]
    assert finding["mend"] == "corral queue resume mail --protocol bullmq"


def test_many_scripts_and_a_taken_port_are_noted(healthy_server: Server, shell: Shell) -> None:
    with healthy_server.connect() as client:
        for number in range(501):
            client.script_load(f"return {number}")
        findings = examine(shell, "--port", str(healthy_server.port), code=0)
        client.script_flush()
    assert levels(findings, "scripts") == levels(findings, "ports") == {"note"}


def test_a_user_that_may_not_run_scripts_is_reported(healthy_server: Server, shell: Shell) -> None:
    with healthy_server.connect() as client:
        client.execute_command(
            "ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-@scripting"
        )
        try:
            where = f"redis://reader:secret@127.0.0.1:{healthy_server.port}"
            findings = examine(shell, "--url", where, "--protocol", "streams", code=1)
            client.execute_command("ACL", "SETUSER", "reader", "-info")
            refused = examine(shell, "--url", where, "--protocol", "streams", code=1)
        finally:
            client.execute_command("ACL", "DELUSER", "reader")
    assert levels(findings, "scripts") == {"mend"}
    assert "INFO is refused" in refused["access"][0]["finding"]
    assert "secret" not in str(findings) + str(refused)


def test_a_refused_command_is_noted_and_the_rest_is_checked(healthy_server: Server, shell: Shell) -> None:
    with healthy_server.connect() as client:
        client.execute_command("ACL", "SETUSER", "corral", *documented_rules(), "+info", "-time")
        where = f"redis://corral:secret@127.0.0.1:{healthy_server.port}"
        try:
            findings = examine(shell, "--url", where, code=0)
            client.execute_command("ACL", "SETUSER", "corral", "+time", "+config|get")
            seen = examine(shell, "--url", where, code=0)
        finally:
            client.execute_command("ACL", "DELUSER", "corral")
    [access] = findings["access"]
    assert ("TIME is refused" in access["finding"], "+time" in access["mend"]) == (True, True)
    assert {"version", "persistence", "eviction", "memory", "scripts", "leaks"} <= findings.keys()
    assert ("access" in seen, "clock" in seen) == (False, True)


def test_a_replica_and_a_cluster_without_slots_are_reported(healthy_server: Server, shell: Shell) -> None:
    replica = start_valkey("--replicaof", f"127.0.0.1 {healthy_server.port}")
    cluster = start_valkey("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        findings = examine(shell, "--url", replica.url, code=1)
        assert f"replica of 127.0.0.1:{healthy_server.port}" in findings["role"][0]["finding"]
        findings = examine(shell, "--url", cluster.url, code=1)
    finally:
        replica.stop()
        cluster.stop()
    assert "0 of 16384 slots" in findings["cluster"][0]["finding"]
    assert levels(findings, "cluster") == {"mend"}
    assert ["--namespace '{bridge}'" in finding["mend"] for finding in findings["tags"]] == [False, True]


@pytest.mark.parametrize(("version", "level"), [("5.0.7", "mend"), ("6.2.1", "fine"), ("8.0.0", "fine")])
def test_an_old_server_is_reported(version: str, level: str) -> None:
    [result] = check_version({"redis_version": version})
    assert result.level.value == level


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
def test_a_clock_is_judged_by_its_certain_offset(ahead: float, trip: float, level: str) -> None:
    before, after = 1000.0, 1000.0 + trip
    result = judge_clock([(before, before + trip / 2 + ahead, after)])
    assert result.level.value == level
    assert f"{ahead * 1000:+.1f} ms from ours" in result.finding
    assert bool(result.mend) == (level != "fine")


def test_the_quickest_answer_decides() -> None:
    slow, quick = (1000.0, 1004.9, 1005.0), (1010.0, 1010.0, 1010.002)
    assert judge_clock([slow, quick]).level.value == "fine"


class WrongClock(Proxy):
    """A proxy of a server whose clock is wrong by so many seconds."""

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
def test_a_wrong_clock_is_to_be_mended(healthy_server: Server, shell: Shell, ahead: float) -> None:
    with WrongClock(healthy_server.port, ahead) as proxy:
        findings = examine(shell, "--url", proxy.url, code=1)
    [finding] = findings["clock"]
    assert finding["level"] == "mend"
    offset = float(finding["finding"].split(" is ")[1].split()[0])
    assert abs(offset - ahead * 1000) < 1500, "the answer has whole seconds, and takes its time"
    assert "NTP" in finding["mend"]
    assert [check for check in findings if "mend" in levels(findings, check)] == ["clock"]


# -- a cluster ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_masters() -> Iterator[ClusterServer]:
    with cluster_of(3, None, "--appendonly", "yes", "--maxmemory", "1gb") as cluster:
        yield cluster


def by_node(findings: dict[str, list[Any]], check: str) -> dict[str, str]:
    return {finding["node"]: finding["level"] for finding in findings[check]}


@pytest.mark.xdist_group("cluster")
def test_every_master_of_a_cluster_is_examined(three_masters: ClusterServer, shell: Shell) -> None:
    nodes = [f"127.0.0.1:{node.port}" for node in three_masters.nodes]
    where = ("--url", three_masters.url, "--protocol", "bullmq")
    findings = examine(shell, *where, code=0)
    for check in ("version", "persistence", "eviction", "memory", "clients", "clock", "scripts", "cluster"):
        assert by_node(findings, check) == dict.fromkeys(nodes, "fine"), findings[check]
    [alone] = findings["nodes"]
    assert (alone["level"], all(node in alone["finding"] for node in nodes)) == ("note", True)
    last, middle = three_masters.client(2), three_masters.client(1)
    try:
        last.config_set("maxmemory-policy", "allkeys-lru")
        middle.config_set("appendonly", "no")
        findings = examine(shell, *where, code=1)
        assert by_node(findings, "eviction") == {nodes[0]: "fine", nodes[1]: "fine", nodes[2]: "mend"}
        assert by_node(findings, "persistence") == {nodes[0]: "fine", nodes[1]: "mend", nodes[2]: "fine"}
        lines = shell("doctor", *where).out.splitlines()
    finally:
        last.config_set("maxmemory-policy", "noeviction")
        middle.config_set("appendonly", "yes")
    assert any(line.startswith("fine  version       all 3 masters: Valkey") for line in lines), lines
    eviction = f"mend  eviction      {nodes[2]}: maxmemory-policy is"
    assert any(line.startswith(eviction) for line in lines), lines
    assert lines[-1].startswith("2 to mend at redis+cluster://")


@pytest.mark.xdist_group("cluster")
def test_a_user_of_a_cluster_with_few_rights_is_reported_with_what_is_missing(
    three_masters: ClusterServer, shell: Shell
) -> None:
    for index in range(3):
        rules = [*documented_rules("Cluster"), "+info", "+time", "+config|get"]
        three_masters.client(index).execute_command("ACL", "SETUSER", "corral", *rules)
    url = three_masters.url.replace("://", "://corral:secret@")
    findings = examine(shell, "--url", url, "--protocol", "bullmq", code=0)
    assert [("CLUSTER INFO" in finding["finding"], "+cluster|info" in finding["mend"])
            for finding in findings["access"]] == [(True, True)] * 3  # fmt: skip
    assert len(findings["version"]) == 3


@pytest.mark.xdist_group("cluster")
def test_leaked_locks_are_found_on_every_node(three_masters: ClusterServer, shell: Shell) -> None:
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
def test_a_master_that_does_not_answer_is_named(shell: Shell) -> None:
    with cluster_of(3, None, "--appendonly", "yes", "--cluster-require-full-coverage", "no") as cluster:
        gone = cluster.nodes[1]
        gone.process.kill()
        gone.process.wait()
        findings = examine(shell, "--url", cluster.url, "--protocol", "bullmq", code=1)
    [missing] = [finding for finding in findings["nodes"] if finding.get("node") == f"127.0.0.1:{gone.port}"]
    assert (missing["level"], "does not answer" in missing["finding"]) == ("mend", True)
    assert "CLUSTER FAILOVER" in missing["mend"]
    assert len(findings["version"]) == 2
