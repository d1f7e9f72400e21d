"""Corral beside other libraries: FastAPI, Flask, Django, Sentry, OpenTelemetry."""
