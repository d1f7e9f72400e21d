"""The JSON Schemas as files and in the documentation: `python -m tests.support.schema_files` writes them."""

from pathlib import Path

import orjson

from corral.core.schema import Schema, event_schema, payload_schema

SCHEMAS = {"job-payload-schema.json": payload_schema, "event-schema.json": event_schema}
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/schemas.md"


def encoded(schema: Schema) -> str:
    """Return a schema as lines of JSON."""
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode()


def page(text: str) -> str:
    """Return the page with the schemas as they are declared now."""
    for name, schema in SCHEMAS.items():
        head, _, rest = text.partition(f"`{name}`:\n\n```json\n")
        tail = rest.partition("\n```\n")[2]
        text = f"{head}`{name}`:\n\n```json\n{encoded(schema())}\n```\n{tail}"
    return text


if __name__ == "__main__":
    for name, schema in SCHEMAS.items():
        path = ROOT / "src/corral/core/schemas" / name
        path.write_text(encoded(schema()) + "\n")
    PAGE.write_text(page(PAGE.read_text()))
