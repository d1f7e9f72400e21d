"""The heart of the contract suite on every kind of server."""

import subprocess
from collections.abc import Callable

import pytest

from tests.contract.test_contract import (  # noqa: F401
    test_a_submitted_job_is_claimed_with_its_data_untouched,
    test_a_turn_settles_and_claims_in_one_trip,
    test_a_waiting_worker_is_woken_by_a_new_job,
    test_a_worker_that_waits_is_listed,
    test_an_abandoned_job_goes_to_another_worker_and_the_late_settlement_is_refused,
    test_counts_follow_the_jobs,
    test_events_can_be_read_page_by_page_and_tailed,
    test_no_job_is_missed_between_the_turn_and_the_wait,
    test_one_refused_settlement_leaves_its_neighbours_alone,
    test_the_reporter_writes_only_while_the_claim_is_held,
    test_what_a_lost_trip_claimed_can_be_adopted,
)
from tests.contract.test_snapshot import (  # noqa: F401
    test_a_census_meets_every_job_in_its_state,
    test_what_is_sent_twice_is_added_once,
)
from tests.support.servers import redis6_binary, redis_server_binary


@pytest.mark.parametrize(("version", "find"), [("6.2", redis6_binary), ("7.", redis_server_binary)])
def test_the_servers_are_of_the_versions_that_are_meant(version: str, find: Callable[[], str | None]) -> None:
    binary = find()
    if binary is None:
        pytest.skip(f"there is no Redis {version} here: all that runs on it is left out")
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"v={version}" in said
