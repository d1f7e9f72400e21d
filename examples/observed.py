"""A worker whose jobs are traced by OpenTelemetry, and whose errors go to Sentry.

pip install 'corral[otel]' opentelemetry-sdk sentry-sdk
SENTRY_DSN=https://…@…/1 corral worker observed:app
corral queue add orders charge '{"order_id": 17}'
"""

import sentry_sdk
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from corral import Corral
from corral.contrib import otel, sentry

sentry_sdk.init()  # the address is in SENTRY_DSN
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)

app = Corral()
otel.instrument(app)
sentry.instrument(app)


@app.job(queue="orders")
async def charge(order_id: int) -> None:
    if order_id < 0:
        raise ValueError(f"no order {order_id}")
