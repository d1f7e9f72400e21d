"""The whole contract suite on every kind of server."""

import pytest

from tests.contract.test_contract import *  # noqa: F403
from tests.contract.test_event_pages import *  # noqa: F403
from tests.contract.test_snapshot import *  # noqa: F403

pytestmark = pytest.mark.faults
