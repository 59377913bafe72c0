"""Permissions of jobs from an untrusted input: allowed targets, and files allowed to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..artifacts.local._tree import open_beneath
from ..errors import UsageError, spelled
from ..protocol._plain_text import is_address, is_page, redact_url
from ..session._named_apps import is_app_name
from ._jobs import Job, shown_path

#: Characters of a target that a message shows.
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Consent:
    """The user's permissions for jobs of an untrusted input or ledger.

    Allowed targets are addresses (``http(s)://``, ``ws(s)://``, ``mcp+http(s)://``), apps of the settings file and the
    run's own ``target``; with ``programs`` also targets that start a program, load an extension or read a file. Files
    must be in ``folder``; without a folder, jobs may not send files. Files go to the run's own target and to apps of
    the settings file; with ``any_target`` also to any target named by the job itself.
    """

    programs: bool = False
    target: str | None = None
    folder: Path | None = None
    any_target: bool = False

    def checked(self, job: Job) -> Job:
        """Return the job with the real paths of its files. Blocks if it has files.

        Raises :class:`~transports.errors.UsageError` with the code ``PERMISSION_DENIED`` if the job exceeds these
        permissions."""
        target = job.target or ""
        if not self.programs and target != self.target and not _is_harmless(target):
            raise _denied(
                f"target: {_shown(target)} is neither an address (http, ws) nor the name of an app; give it as the "
                f"run's own with {spelled('target=')}, or allow jobs to start programs and read files: "
                f"{spelled('allow_programs=')}"
            )
        if not job.files:
            return job
        return replace(job, files=self._real(job.files, target))

    def _real(self, files: Mapping[str, Path], target: str) -> Mapping[str, Path]:
        place = next(iter(files))
        if self.folder is None:
            raise _denied(f"files.{place}: name the folder of the jobs' files with {spelled('files_from=')}")
        if not self.any_target and target != self.target and not is_app_name(target):
            raise _denied(
                f"files.{place}: the line names {_shown(target)} itself, and files go to the run's own target alone; "
                f"if it is the run's target, give it with {spelled('target=')}; else name the folder of the files with "
                f"{spelled('files_from=')}"
            )
        return {place: self._below(place, path, self.folder.resolve()) for place, path in files.items()}

    def _below(self, place: str, path: Path, folder: Path) -> Path:
        refused = _denied(
            f"files.{place}: {shown_path(path)} is not a regular file in {folder}; correct the path, or name another "
            f"folder with {spelled('files_from=')}"
        )
        with open_beneath(str(path), (folder,), refused) as file:
            return Path(str(file.name))


def _is_harmless(target: str) -> bool:
    """Return whether a target is a network address or an app of the settings file."""
    return is_address(target) or is_page(target.removeprefix("mcp+")) or is_app_name(target)


def _shown(target: str) -> str:
    return repr(redact_url(target)[:_MAX_SHOWN])


def _denied(message: str) -> UsageError:
    return UsageError(message, code="PERMISSION_DENIED")
