"""A module that takes long to import in a handler's process."""

import os
from multiprocessing import parent_process
from pathlib import Path

from tests.support.polling import block

SECONDS = 1.0

if parent_process() is not None:
    block(SECONDS)
    if "SLOW_IMPORT_DONE" in os.environ:
        Path(os.environ["SLOW_IMPORT_DONE"]).touch()


def work(job):
    block(job.data)
    return "done"
