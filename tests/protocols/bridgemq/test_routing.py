"""The routing rule inside the server agrees with the rule in Python and with the table in the docs."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.store.scripts import Script, _expand
from tests.support.routing import LISTS, ROOT, TABLE, WORDS, judged
from tests.support.servers import Server


def matcher() -> Script:
    """A script around the very part that the verbs of the protocol use."""
    folder = ROOT / "src/corral/protocols/bridgemq/lua"
    text = """
    -- use routing
    local worker = cjson.decode(ARGV[2])
    local answer = fits(cjson.decode(ARGV[1]).target, {
      server = worker.server, stack = set_of(worker.stack or {}),
      capabilities = set_of(worker.capabilities or {}), region = set_of(worker.region or {})})
    if answer == nil then return "cannot be read" end
    return answer and "yes" or "no"
    """
    return Script("matcher", _expand(text.replace("    --", "--"), folder, set()))


def in_the_server(server: Server, target: Any, worker: dict[str, Any]) -> bool | None:
    with server.connect() as client:
        answer = client.eval(matcher().text, 0, json.dumps({"target": target}), json.dumps(worker))
    return {b"yes": True, b"no": False}.get(answer)


@pytest.mark.parametrize(("target", "worker", "answer"), TABLE)
def test_the_server_keeps_to_the_table_in_the_docs(server: Server, target, worker, answer):
    assert in_the_server(server, target, worker) is answer


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
odd_targets = anything | st.fixed_dictionaries(
    {},
    optional={
        "server": anything,
        "stack": LISTS | anything,
        "capabilities": LISTS | anything,
        "region": LISTS | anything,
        "mode": st.sampled_from(["all", "any"]) | anything,
        "zone": anything,
    },
)
wire_workers = st.fixed_dictionaries(
    {"server": st.sampled_from(["w1", "gpu"]), "stack": LISTS, "capabilities": LISTS, "region": LISTS}
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(target=odd_targets, worker=wire_workers)
def test_the_server_agrees_with_the_rule_on_every_target(server: Server, target, worker):
    assert in_the_server(server, target, worker) is judged(target, worker)
