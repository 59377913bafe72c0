"""Jobs and their keys; what an error says of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rows import each_row
from transports import Result
from transports.artifacts import MemoryStore
from transports.batch._jobs import Job, Outcome, State
from transports.errors import (
    ABPError,
    BinaryError,
    CallTimeout,
    CapabilityError,
    ConnectFailed,
    Disconnected,
    NotAbpApp,
    OutcomeUnknown,
    ProtocolError,
    StoreError,
    StoreFull,
    UsageError,
)


def test_job_key_depends_only_on_requested_work(tmp_path: Path) -> None:
    one, same, other = tmp_path / "one", tmp_path / "same", tmp_path / "other"
    for path, content in ((one, b"x"), (same, b"x"), (other, b"y")):
        path.write_bytes(content)
    job = Job("a.b", {"x": 1, "y": {"z": 2, "ä": None}}, "memory:", files={"f": one})
    assert len(job.key) == 64
    beside = Job(
        "a.b",
        {"y": {"ä": None, "z": 2}, "x": 1},
        "memory:",
        id="7",
        files={"f": same},
        timeout=3,
        idempotent=True,
        carried={"c": 1},
    )
    assert beside.key == job.key
    differing = [
        Job("a.c", job.params, job.target, files=job.files),
        Job("a.b", {**job.params, "x": 2}, job.target, files=job.files),
        Job("a.b", {**job.params, "x": "1"}, job.target, files=job.files),
        Job("a.b", job.params, None, files=job.files),
        Job("a.b", job.params, job.target, files={"f": other}),
        Job("a.b", job.params, job.target, files={"g": one}),
        Job("a.b", job.params, job.target),
    ]
    assert len({job.key, *(one.key for one in differing)}) == 8


def test_job_files_are_placed_in_call_params(tmp_path: Path) -> None:
    params = {"pages": [{"title": "T"}]}
    job = Job("a.b", params, files={"pages.0.image": tmp_path, "cover": tmp_path})  # type: ignore[arg-type]
    assert job.call_params() == {"pages": [{"title": "T", "image": tmp_path}], "cover": tmp_path}
    assert params == {"pages": [{"title": "T"}]}
    with pytest.raises(UsageError, match=r"files\.f: .*gone cannot be read"):
        _ = Job("a.b", files={"f": tmp_path / "gone"}).key


@each_row(
    ("error", "sent", "state", "once", "idempotent"),
    [
        (CapabilityError("no"), True, State.FAILED, False, False),
        (CapabilityError("later", retryable=True), True, State.FAILED, False, True),
        (CapabilityError("busy", code="RATE_LIMITED", retryable=True, retry_after=2), True, State.FAILED, True, True),
        (CapabilityError("no", retryable=True, details={"sent": False}), True, State.FAILED, False, True),
        (CapabilityError("no", retryable=True), False, State.FAILED, True, True),
        (UsageError("wrong"), True, State.FAILED, False, False),
        (BinaryError("cut"), False, State.FAILED, False, False),
        (CallTimeout("late"), True, State.UNKNOWN, False, True),
        (CallTimeout("late"), False, State.FAILED, True, True),
        (Disconnected("gone"), True, State.UNKNOWN, False, True),
        (Disconnected("gone", sent=False), True, State.FAILED, True, True),
        (OutcomeUnknown("left"), True, State.UNKNOWN, False, False),
        (ConnectFailed("nobody"), False, State.FAILED, True, True),
        (NotAbpApp("no app"), False, State.FAILED, False, False),
        (ValueError("a bug"), True, State.UNKNOWN, False, False),
        (ValueError("a bug"), False, State.FAILED, False, False),
    ],
)
def test_error_says_what_became_of_job_and_whether_it_may_be_retried(
    error: Exception, sent: bool, state: State, once: bool, idempotent: bool
) -> None:
    for job, again in ((Job("a"), once), (Job("a", idempotent=True), idempotent)):
        outcome = Outcome.of_error(job, error, sent=sent, attempts=2, milliseconds=5.0)
        assert (outcome.state, outcome.retryable, outcome.attempts) == (state, again, 2), (error, job)
        assert outcome.error and outcome.error_code
        assert outcome.retry_after == (error.retry_after if isinstance(error, ABPError) else None)


async def test_files_of_a_failed_call_are_those_of_its_job() -> None:
    ref = await MemoryStore().put_bytes(b"x")
    error = CapabilityError("not all")
    error.result = Result("a", {}, {"file": ref}, "memory", 1.0)
    assert Outcome.of_error(Job("a"), error).artifacts == (ref,)


def test_job_with_unstorable_answer_is_unknown_unless_idempotent() -> None:
    for error in (BinaryError("cut"), StoreError("no disk"), ProtocolError("no answer"), StoreFull("full")):
        assert Outcome.of_error(Job("a"), error).state is State.UNKNOWN
        assert Outcome.of_error(Job("a", idempotent=True), error).state is State.FAILED
        assert Outcome.of_error(Job("a"), error, sent=False).state is State.FAILED
