"""A module that takes long to import in a handler's process."""

from multiprocessing import parent_process

from tests.support.polling import block

if parent_process() is not None:
    block(1.0)


def work(job):
    block(job.data)
    return "done"
