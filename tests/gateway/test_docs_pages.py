"""The reference page has every problem, setting, event, role and path."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from corral.gateway import GatewaySettings, create_app
from corral.gateway.metrics import GatewayMetrics
from corral.gateway.problems import KINDS
from corral.gateway.security.auth import Role

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "http.md").read_text()
SOURCE = "".join(path.read_text() for path in sorted((ROOT / "src/corral/gateway").rglob("*.py")))


def test_every_problem_is_on_the_page_with_its_status() -> None:
    for kind in KINDS:
        assert f"| `{kind.name}` | {kind.status} |" in PAGE


def test_every_setting_is_on_the_page_with_its_default_and_description() -> None:
    for name, setting in GatewaySettings.model_fields.items():
        [(default, description)] = re.findall(rf"^\| `{name}` \| (.*?) \| (.+) \|$", PAGE, re.MULTILINE)
        assert description == setting.description
        if isinstance(setting.default, int | float | str):
            assert default == str(setting.default).replace("False", "false")


def test_every_event_of_the_gateways_own_is_on_the_page() -> None:
    events = set(re.findall(r'gateway_frame\(\s*"(gateway\.[a-z]+)"', SOURCE))
    assert len(events) >= 8
    assert {name for name in events if f"`{name}`" not in PAGE} == set()


def test_every_role_is_on_the_page() -> None:
    assert all(f"| `{role}` |" in PAGE for role in Role)


def test_every_path_is_on_the_page() -> None:
    document = create_app(GatewaySettings(redis_url="redis://127.0.0.1:1")).openapi()
    for path in document["paths"]:
        last = path.replace("{job_id}", "{id}").removeprefix("/v1/queues/{protocol}/{queue}")
        if last.endswith("{verb}"):
            last = last.replace("{verb}", "{retry,replay,promote,remove,cancel}")
        assert last in PAGE, path


def test_every_metric_is_on_the_page() -> None:
    registry = CollectorRegistry()
    GatewayMetrics(registry)
    for family in registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert f"| `{family.name}{suffix}` | {family.type} |" in PAGE
