"""What a run measured, rows with their targets; and on what, in general words."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import asdict, dataclass, field

import psutil

__all__ = ["Report", "Row", "machine"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``unit`` is ``×`` (more is better, the baseline is 1), ``MB`` (growth: less is better) or ``n^`` (the
    exponent of a growth: less is better)."""

    work: str
    baseline: str
    figure: float
    #: The measured values behind the figure, in words.
    measured: str
    unit: str = "×"
    #: Targets; ``None`` for a figure that has none.
    at_least: float | None = None
    want: float | None = None
    #: Why it is not more; shown where the figure falls short of what is wanted.
    reason: str = ""
    #: Things that went wrong with the content; always falls short.
    wrong: str = ""

    def _reaches(self, target: float | None) -> bool:
        if target is None:
            return True
        return self.figure >= target if self.unit == "×" else self.figure < target

    @property
    def verdict(self) -> str:
        """In plain words."""
        if self.wrong:
            return f"WRONG: {self.wrong}"
        if self.at_least is None:
            return "for information"
        if not self._reaches(self.at_least):
            return "falls short"
        return "as wanted" if self._reaches(self.want) else "enough, less than wanted"

    @property
    def short(self) -> bool:
        return bool(self.wrong) or not self._reaches(self.at_least)

    @property
    def shown(self) -> str:
        """The figure as it is read."""
        if self.unit == "n^":
            return f"n^{self.figure:.2f}"
        if self.unit == "×":
            return f"{self.figure:.{0 if self.figure >= 100 else 1 if self.figure >= 10 else 2}f}×"
        return f"{self.figure:.{0 if self.figure >= 100 else 1}f} {self.unit}"

    def target(self, value: float | None) -> str:
        """A target as it is read."""
        if value is None:
            return "–"
        return f"{round(value, 2):g}×" if self.unit == "×" else f"< {value:g} {self.unit}"

    @property
    def explanation(self) -> str:
        """The reason, where there is something to explain."""
        return "" if self.verdict in ("as wanted", "for information") else self.reason


@dataclass(slots=True)
class Report:
    """Everything a run found."""

    machine: dict[str, str]
    quick: bool
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    #: Seconds of each measurement by its name.
    took: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """As JSON."""
        rows = [{**asdict(row), "verdict": row.verdict} for row in self.rows]
        return {
            "machine": self.machine,
            "quick": self.quick,
            "seconds": round(self.seconds, 1),
            "took": self.took,
            "rows": rows,
        }


def machine(browser: str) -> dict[str, str]:
    """Names and versions; nothing that tells one machine from another of its kind."""
    return {
        "system": f"{platform.system()} {platform.machine()}, {psutil.cpu_count()} cores, "
        f"{round(psutil.virtual_memory().total / (1 << 30))} GB of memory",
        "Python": platform.python_version(),
        "Playwright": importlib.metadata.version("playwright"),
        "Chromium": browser,
        "load before the run": f"{psutil.getloadavg()[0]:.1f}",
    }
