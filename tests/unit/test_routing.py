"""Which worker fits which target: the rule in Python and its table in the docs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corral.core.routing import (
    Identity,
    Target,
    check_identity,
    check_target,
    fits,
    read_target,
    write_target,
)
from corral.errors import InvalidOptions
from tests.support.routing import LISTS, TABLE, WORDS, judged


def test_the_table_in_the_docs_is_there():
    assert len(TABLE) > 30


@pytest.mark.parametrize(("target", "worker", "answer"), TABLE)
def test_the_rule_keeps_to_the_table_in_the_docs(target, worker, answer):
    assert judged(target, worker) is answer


# -- properties -------------------------------------------------------------------------------------------

targets = st.builds(
    Target,
    server=st.sampled_from(["", "", "w1", "w2"]),
    stack=LISTS.map(tuple),
    capabilities=LISTS.map(tuple),
    region=LISTS.map(tuple),
    mode=st.sampled_from(["all", "any"]),
)
workers = st.builds(
    Identity,
    server=st.sampled_from(["w1", "w2"]),
    stack=LISTS.map(frozenset),
    capabilities=LISTS.map(frozenset),
    region=LISTS.map(frozenset),
)


@given(targets, workers)
def test_a_server_decides_alone(target: Target, worker: Identity):
    if target.server:
        assert fits(worker, target) == (worker.server == target.server)


@given(targets, workers)
def test_a_worker_that_fits_all_criteria_fits_any_of_them(target: Target, worker: Identity):
    strict, lax = replace(target, server="", mode="all"), replace(target, server="", mode="any")
    assert not fits(worker, strict) or fits(worker, lax)


@given(targets, workers, WORDS)
def test_a_worker_that_can_do_more_fits_no_less(target: Target, worker: Identity, word: str):
    abler = replace(worker, capabilities=worker.capabilities | {word})
    assert not fits(worker, target) or fits(abler, target)


@given(workers)
def test_an_empty_target_fits_everyone(worker: Identity):
    assert fits(worker, Target(mode="all"))
    assert fits(worker, Target(mode="any"))


@given(targets)
def test_a_target_comes_back_from_the_wire_as_it_went(target: Target):
    back = read_target(json.loads(json.dumps(write_target(target))))
    if target.server:
        assert back == Target(server=target.server)
    elif write_target(target):
        assert back == target
    else:
        assert back == Target()


# -- what producers and workers may say -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"mode": "some"}, "target mode is 'some'; use 'all' or 'any'"),
        ({"capability": ["gpu"]}, "target has 'capability'; use 'server', 'stack', 'capabilities', 'region'"),
        ({"capabilities": [1]}, "target capabilities is [1]; use a list of texts"),
        ({"server": 7}, "target server is 7; use the id of one worker"),
        (["gpu"], "target is ['gpu']; use a dict such as {'capabilities': ['gpu']}"),
        ({"server": "w1", "region": ["eu"]}, "a server decides alone: leave the rest out"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused_with_the_way_out(target, message):
    with pytest.raises(InvalidOptions) as refused:
        check_target(target)
    assert message in str(refused.value)


def test_a_target_can_be_given_as_such():
    target = Target(capabilities=("gpu",), mode="any")
    assert check_target(target) == target
    assert check_target(None) == Target()


@pytest.mark.parametrize(
    ("server", "parts", "message"),
    [
        ("", {}, "server id is ''"),
        (7, {}, "server id is 7"),
        ("w1", {"capabilities": 7}, "worker capabilities is 7; use a list of texts"),
        ("w1", {"region": [None]}, "worker region is [None]; use a list of texts"),
    ],
)
def test_an_identity_that_makes_no_sense_is_refused(server, parts, message):
    with pytest.raises(InvalidOptions) as refused:
        check_identity(server, **parts)
    assert message in str(refused.value)
