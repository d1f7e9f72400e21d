"""The state machine of the BridgeMQ protocol, for longer."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.bridgemq_machine import Machine
from tests.support.servers import Server

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


def test_whatever_is_done_for_long_the_namespace_is_as_the_model_says(server: Server):
    class OnThisServer(Machine):
        server_url = server.url

    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=400, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
