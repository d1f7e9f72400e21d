"""The model: pure values and rules, without Redis, clock or event loop."""
