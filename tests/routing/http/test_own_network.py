"""Which addresses are connected to, in a network with public and private ones and a resolver (docs/faults.md 35)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import missing
from tests.support.own_network import METADATA, NOT_ALLOWED, PRIVATE, PUBLIC

_BLOCKED = "BLOCKED_ADDRESS"


@pytest.mark.load
@pytest.mark.fault(35)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: for a network of its own")
def test_only_public_and_app_addresses_are_connected(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.own_network", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120)
    if done.returncode == NOT_ALLOWED:
        missing("root", f"a network namespace: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "a public name": ["OK", {PUBLIC: 1}],
        "a private name": [_BLOCKED, {}],
        "a name with both": ["OK", {PUBLIC: 1}],
        "a redirect to a private name": [_BLOCKED, {PUBLIC: 1}],
        "a redirect to an address": [_BLOCKED, {PUBLIC: 1}],
        "a name that changes": [_BLOCKED, {PUBLIC: 1}],
        "the app's own name: app.example": ["OK", {PRIVATE: 1}],
        "the app's own name: moved.example": [_BLOCKED, {}],
        "a manifest": [_BLOCKED, {PUBLIC: 1}],
        "a resource": ["OK", {PUBLIC: 1}],
        "a private resource": [_BLOCKED, {}],
        "a resource of a name that changes": [_BLOCKED, {PUBLIC: 1}],
    }
    assert METADATA not in done.stdout  # nothing ever went there
