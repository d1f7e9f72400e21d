"""Add, claim, complete, fail, kill, pause, limit, advance the clock: in any order, as the model says."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.bridgemq_machine import Machine
from tests.support.servers import Server


def test_whatever_is_done_the_namespace_is_as_the_model_says(server: Server):
    class OnThisServer(Machine):
        server_url = server.url

    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
