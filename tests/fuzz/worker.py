"""One target in a process of its own: ``python -m tests.fuzz.worker TARGET SECONDS SEED FOLDER``.

With ``atheris`` the inputs are guided by coverage, and those that reached something new are kept in
``FOLDER/TARGET/corpus`` for the next run. Without it they are mutations of the corpus. The first input that breaks the
rule of :mod:`.cases` ends the run; inputs that broke it are in ``FOLDER/TARGET/found``.
``python -m tests.fuzz.worker TARGET FILE`` runs one input again, with nothing that measures coverage.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import random
import resource
import sys
import time
from pathlib import Path
from typing import NoReturn

from .cases import MAX_BYTES, MAX_SECONDS, Slow, read_corpus, run_case
from .mutation import WORDS, mutate

#: Marks the line of stderr that has the number of cases; libFuzzer's own words.
COUNTED = "stat::number_of_executed_units:"
_MAX_MEMORY = 1 << 10  # MiB
#: How much longer a case may take while coverage is measured. What took too long is run again without that.
_SLOWER = 4
_MAX_SLOW = 20


def main(args: list[str]) -> None:
    """Run the target that the arguments name."""
    logging.disable()
    if len(args) == 2:
        from .targets import TARGETS

        run_case(TARGETS[args[0]], Path(args[1]).read_bytes())
        return
    name, seconds, seed, folder = args[0], float(args[1]), int(args[2]), Path(args[3], args[0])
    for kind in ("corpus", "found"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    run = _mutated if importlib.util.find_spec("atheris") is None else _guided
    run(name, seconds, seed, folder)


def _guided(name: str, seconds: float, seed: int, folder: Path) -> NoReturn:
    import atheris

    with atheris.instrument_imports(include=["transports"]):
        from .targets import TARGETS
    target, seeds, slow = TARGETS[name], read_corpus(name), 0

    def run(data: bytes) -> None:
        nonlocal slow
        try:
            run_case(target, data, _SLOWER * MAX_SECONDS)
        except Slow:
            if slow == _MAX_SLOW:
                raise
            slow += 1
            _keep(folder, "slow", data)

    def change(data: bytes, max_bytes: int, number: int) -> bytes:
        if number % 4:
            return atheris.Mutate(data, max_bytes)  # type: ignore[no-any-return]
        return mutate(random.Random(number), data, seeds)[:max_bytes]

    words = folder / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS if len(word) <= 64))
    options = {
        "max_total_time": int(seconds),
        "seed": seed,
        "max_len": MAX_BYTES,
        "timeout": 20,
        "rss_limit_mb": _MAX_MEMORY,
        "dict": words,
        "artifact_prefix": f"{folder / 'found'}/",
        "print_final_stats": 1,
        "verbosity": 1,
    }
    corpora = [str(folder / "corpus"), str(Path(__file__).parent / "corpus" / name)]
    atheris.Setup(
        ["fuzz", *(f"-{key}={value}" for key, value in options.items()), *corpora], run, custom_mutator=change
    )
    atheris.Fuzz()
    sys.exit()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _mutated(name: str, seconds: float, seed: int, folder: Path) -> None:
    from .targets import TARGETS

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 * _MAX_MEMORY << 20, most))
    rng, seeds, count = random.Random(seed), read_corpus(name), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutate(rng, rng.choice(seeds), seeds)
        try:
            run_case(TARGETS[name], data)
        except Exception as error:
            _keep(folder, "slow" if isinstance(error, Slow) else "crash", data)
            break
        finally:
            count += 1
    print(COUNTED, count, file=sys.stderr)


def _keep(folder: Path, kind: str, data: bytes) -> None:
    (folder / "found" / f"{kind}-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
