"""Imports what Spark's Python processes need into the process that they are forked from.

Spark forks one for each schema, plan and stream of a Python data source, and each would import pyspark and
Corral: about a second of processor time for every read. Python imports this module when it starts;
in any other process it does nothing.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import importlib

    importlib.import_module(sys.orig_argv[-1])
    importlib.import_module("corral.spark.source")
