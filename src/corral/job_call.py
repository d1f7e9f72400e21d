"""JobCall: a job to be added, with the jobs that run before it: flows and chains."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from corral.core.job import Job
from corral.core.ports import Added, AddedFlow, Flow
from corral.errors import InvalidOptions, NotDurable
from corral.handle import JobHandle, with_stored

if TYPE_CHECKING:
    from corral.job_type import JobType

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Item_contra = TypeVar("Item_contra", contravariant=True)

IF_DEAD = "fail_parent"
"""What the death of a child means where nothing else is said: a result that is awaited would never come."""


class TakesResult(Protocol[Item_contra, P, R_co]):
    """A job type that can be called with this value, and with further arguments."""

    def call(self, item: Item_contra, /, *arguments: P.args, **named: P.kwargs) -> "JobCall[R_co]": ...
    def call_after(
        self, before: "JobCall[Any]", arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> "JobCall[R_co]": ...


@dataclass(frozen=True)
class JobCall(Generic[R_co]):
    """A job to be added: its type, its data and its options; made by `JobType.call`.

    >>> handle = await app.flow(report.call(day), children=[charge.call(o) for o in orders]).add()  # doctest: +SKIP
    >>> handle = await fetch.call(url).then(parse).then(store).add()                    # doctest: +SKIP
    """  # noqa: E501

    job_type: "JobType[..., R_co]"
    data: Any
    options: Mapping[str, Any]
    children: "tuple[JobCall[Any], ...]" = ()
    """Jobs that run before it."""
    first: str | None = None
    """The parameter that takes the result of its only child ("": all its data); None: none does."""

    def then(
        self, job_type: TakesResult[R_co, P, R], /, *arguments: P.args, **named: P.kwargs
    ) -> "JobCall[R]":
        """Return a job of that type that runs after this one, with its result as the first argument.

        >>> await thumbnail.call("cow.jpg").then(publish, album="farm").add()           # doctest: +SKIP
        """
        return job_type.call_after(self, arguments, named)

    async def add(self) -> JobHandle[R_co]:
        """Add it with all jobs that run before it, in one step; the handle is its own.

        So `result()` waits for the last job of a chain, and for the root of a flow.
        """
        queue, name, result = self.job_type.queue, self.job_type.name, self.job_type.signature.result
        if not self.children:
            return await queue.add_one(name, self.data, self.options, result)
        jobs = _new_jobs(self)
        if await queue.app.check_clock():
            jobs = _new_jobs(self)
        durability = queue.app.durability
        level = queue.durability([call.options.get("durability") for call, _ in _levels(self)])
        ([root, *_], [added, *_]), is_durable = await durability.kept(
            queue, level, lambda: _submit(self, jobs)
        )
        handle = JobHandle[R_co](queue, root, added.id, added.existed, result)
        if not is_durable:
            raise NotDurable([handle], level, durability.timeout_s)
        return (await with_stored([handle]))[0]


def with_children(job: JobCall[R], children: Sequence[JobCall[Any]]) -> JobCall[R]:
    """Return the job with these children; refused where their protocol has no flows, or they have others."""
    job_type = job.job_type
    assert job_type.queue.flows is not None, "else it raises"
    for child in children:
        other = child.job_type.queue
        if (other.app, other.protocol) != (job_type.app, job_type.queue.protocol):
            raise InvalidOptions(
                f"{child.job_type!r} cannot be a child of {job_type!r}: "
                f"all jobs of a flow belong to one app and one protocol"
            )
        for option in ("unique", "throttle", "debounce", "deduplication"):
            if child.options.get(option):
                raise InvalidOptions(
                    f"{child.job_type.name!r} has {option}={child.options[option]!r}, and is a child of "
                    f"{job_type.name!r}, which would wait for a job that was never added; take it away by "
                    f".options({option}=None), or give the child an id, by which flows can share it"
                )
    return JobCall(job_type, job.data, job.options, tuple(children), job.first)


def _levels(root: JobCall[Any]) -> Iterator[tuple[JobCall[Any], bool]]:
    """Yield the root and all jobs below it, level by level, and whether each is a child."""
    yield root, False
    level = root.children
    while level:
        following: list[JobCall[Any]] = []
        for call in level:
            yield call, True
            following += call.children
        level = tuple(following)


def _new_jobs(root: JobCall[Any]) -> list[Job]:
    """Return the jobs, level by level."""
    return [
        call.job_type.queue.new_job(
            call.job_type.name,
            call.data,
            {"if_dead": IF_DEAD, **call.options} if is_child else call.options,
        )
        for call, is_child in _levels(root)
    ]


async def _submit(root: JobCall[Any], jobs: Sequence[Job]) -> tuple[Sequence[Job], Sequence[Added]]:
    """Submit the jobs of a flow; return them as they were submitted, and what was added for each."""
    queue, submitted = root.job_type.queue, jobs
    app, flows = queue.app, queue.flows

    async def submit(jobs: Sequence[Job]) -> Sequence[Added]:
        nonlocal submitted
        submitted = jobs
        [added] = await flows.add_many([_tree(root, jobs)])
        return list(_answers(added))

    answers = await (app.around_add(queue, submit) if app.has_on_add else submit)(jobs)
    return submitted, answers


def _tree(root: JobCall[Any], jobs: Sequence[Job]) -> Flow:
    """Return the flow of these jobs, built from its leaves up, whatever its depth."""
    calls = [call for call, _ in _levels(root)]
    end = len(calls)
    flows: dict[int, Flow] = {}
    for number in range(len(calls) - 1, -1, -1):
        call = calls[number]
        # the children of the last calls are the last of what follows
        start = end - len(call.children)
        flows[number] = Flow(jobs[number], tuple(flows.pop(n) for n in range(start, end)), first=call.first)
        end = start
    return flows[0]


def _answers(root: AddedFlow) -> Iterator[Added]:
    """Yield what was added for each job, level by level; a root that existed answers for its children too."""
    assert isinstance(root.answer, Added)
    level = [root]
    while level:
        for tree in level:
            yield tree.answer if isinstance(tree.answer, Added) else root.answer
        level = [child for tree in level for child in tree.children]
