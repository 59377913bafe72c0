"""Every example runs as its own first line says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.hosts.environment import python_of
from tests.support.command_line import CommandLine, serving
from tests.support.mcp_servers import target
from tests.support.slow_client import leave
from tests.surfaces.cli.conftest import abp as abp
from transports.testing.contract import BEHAVIOURS

ROOT = Path(__file__).parents[2]

WEBSOCKET_HANDSHAKE = (
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as served:
        yield served.url


Run = Callable[..., str]


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Examples in this process, without a second for each start of Python; their folder is ``tmp_path``."""

    def run(name: str, *args: str) -> str:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setenv("ABP_OUTPUT_DIR", str(tmp_path / "out"))
            patch.setattr("sys.argv", [name, *args])
            capfd.readouterr()
            runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capfd.readouterr().out

    return run


def run_example(name: str, *args: str, cwd: Path, timeout: float = 180) -> str:
    """Run an example as a process, as its users do."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *args],
        cwd=cwd,
        env={**os.environ, "ABP_OUTPUT_DIR": str(cwd / "out")},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f'"{path.name}"' not in source] == []


NEED_ARGUMENTS = sorted(
    path.name
    for path in (ROOT / "examples").glob("*.py")
    if re.search(rf"python examples/{path.name} \S", path.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("name", NEED_ARGUMENTS)
def test_an_example_without_arguments_prints_its_usage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert f"python examples/{name} " in str(end.value.code)


@pytest.mark.slow
@pytest.mark.requirement("R5-5d")
@pytest.mark.requirement("R5-5a")
def test_export_pdf(url: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<h1>From a file</h1>", encoding="utf-8")
    printed = run_example("export_pdf.py", url, "page.html", cwd=tmp_path)
    assert "Type: application/pdf" in printed
    assert len(list((tmp_path / "out").glob("export_pdf_*.pdf"))) == 1


@pytest.mark.requirement("R5-5a")
@pytest.mark.slow
def test_blocking(url: str, tmp_path: Path) -> None:
    picture = ROOT / "webapp_fixture" / "samples" / "picture.png"
    printed = run_example("blocking.py", url, str(picture), cwd=tmp_path)
    assert re.sub(r" /.*\.png", "", printed) == "64\n320\nrefused: INVALID_PARAMS\n"
    assert [len(list((tmp_path / "out").glob(f"picture-{width}x*.png"))) for width in (64, 320)] == [1, 1]


@pytest.mark.slow
def test_files_in_and_out(run_here: Run, url: str, tmp_path: Path) -> None:
    picture = ROOT / "webapp_fixture" / "samples" / "picture.png"
    printed = run_here("files_in_and_out.py", url, str(picture))
    assert "refused, as it should be" in printed and "100%" in printed
    assert len(list((tmp_path / "pictures").glob("*"))) == 7  # six pictures and the store's own folder
    assert len(list((tmp_path / "pages").iterdir())) == 3 and str(tmp_path / "pages") in printed


@pytest.mark.requirement("R5-5f")
def test_websocket_client(run_here: Run, url: str) -> None:
    assert "Type: text/csv" in run_here("websocket_client.py", url.replace("http", "ws") + "abp")


def test_websocket_reconnect(run_here: Run, url: str) -> None:
    printed = run_here("websocket_reconnect.py", url.replace("http", "ws") + "abp", "3")
    assert printed.splitlines() == ["0 open 1", "1 open 1", "2 open 1"]


def test_websocket_app(abp: CommandLine, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "websocket_app.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as app:
        assert app.stdout and app.stderr
        address = app.stdout.readline().strip()
        leave(address, WEBSOCKET_HANDSHAKE, after=1)
        document = abp("call", address, "text.shout", "-p", "text=hé", "--json", "--out", tmp_path).document
        checked = abp("conformance", address)
        app.kill()
        assert app.stderr.read() == ""
    assert document["transport"] == "websocket" and document["data"]["characters"] == 2
    assert Path(document["artifacts"][0]["path"]).read_text(encoding="utf-8") == "HÉ"
    assert checked.status == 0 and "conformant: " in checked.out, checked


@pytest.mark.slow
def test_session_events(run_here: Run) -> None:
    assert run_here("session_events.py").splitlines() == [
        "progress 50%",
        "progress 100%",
        "new: extra.hello gone: -",
        "[('dialog', 'dismissed')]",
    ]


@pytest.mark.requirement("R5-5e")
@pytest.mark.slow
def test_host_page(url: str, tmp_path: Path) -> None:
    picture = ROOT / "webapp_fixture" / "samples" / "picture.png"
    printed = run_example("host_page.py", f"{url}embed", str(picture), cwd=tmp_path)
    assert re.findall(r"Type: (.+)", printed) == ["image/png", "audio/wav", "image/png"]
    with Image.open(re.findall(r"File saved: (.+)", printed)[2]) as thumbnail:
        assert thumbnail.width == 64
    metadata = json.loads(printed.partition("Metadata: ")[2])
    assert len(set(metadata["sessions"])) == 3 and metadata["moved"] is True


def test_without_a_browser(run_here: Run) -> None:
    printed = run_here("without_a_browser.py")
    assert printed.startswith("rendering\nFile saved: ") and printed.rstrip().endswith('Metadata: {"pages":1}')


@pytest.mark.slow
def test_replay(url: str, tmp_path: Path) -> None:
    recorded = run_example("replay.py", "session.jsonl", url, cwd=tmp_path)
    replayed = run_example("replay.py", "session.jsonl", cwd=tmp_path)
    assert recorded == replayed and recorded.startswith("application/pdf ")


@pytest.mark.slow
@pytest.mark.requirement("R4-15j", "R4-15l")
def test_mcp_client(run_here: Run, url: str, tmp_path: Path) -> None:
    printed = run_here("mcp_client.py", url.replace("http", "ws") + "abp")  # the bridge needs no browser for it
    (pdf,) = (tmp_path / "out").glob("*.pdf")
    assert hashlib.sha256(pdf.read_bytes()).hexdigest() in printed
    assert printed.splitlines()[-1] == "b'%PDF-'"


@pytest.mark.slow
def test_mcp_server(tmp_path: Path) -> None:
    printed = run_example("mcp_server.py", target("tableau"), "download_workbook", cwd=tmp_path)
    assert printed.startswith("Tableau 1.0 has download_workbook")
    assert "Type: application/pdf" in printed and "26 resources" in printed and "Type: text/csv" in printed


@pytest.mark.slow
def test_any_page_example_prints_artifacts(tmp_path: Path) -> None:
    printed = run_example("any_page.py", cwd=tmp_path)
    assert all(words in printed for words in ("Type: text/csv", "Type: image/png", "report.txt"))


@pytest.mark.hosts
def test_jupyterlab(tmp_path: Path) -> None:
    """The real JupyterLab, in an environment of its own: 21 tools, a plot, an error of the kernel, a cancelled cell."""
    jupyter = python_of("jupyterlab").with_name("jupyter")
    printed = run_example("jupyterlab.py", str(jupyter), str(tmp_path), cwd=tmp_path, timeout=240)
    assert "21 tools" in printed and "refused: run_cell: " in printed and "a long cell was cancelled" in printed
    assert "ZeroDivisionError" in printed
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.format == "PNG" and picture.width > 100
    notebook = json.loads((tmp_path / "plot.ipynb").read_text(encoding="utf-8"))
    assert "pyplot.plot" in "".join(notebook["cells"][0]["source"])


# --- a transport of somebody else's, in a package of its own ----------------------------------------------------------


SOURCE = ROOT / "examples" / "third_party_transport"


def run(*command: object, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of its source, so that building leaves nothing behind."""
    copy = tmp_path_factory.mktemp("package") / "abp-unix-socket"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return copy


@pytest.fixture(scope="module")
def site(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed, beside the packages that these tests use."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--target", folder, "--no-deps", "--no-build-isolation", "--offline", "--python", sys.executable)
    run(sys.executable, "-m", "uv", "pip", "install", *options, package, cwd=package)
    return folder


@pytest.mark.slow
def test_installed_third_party_transport_passes_contract_suite(package: Path, site: Path) -> None:
    path = os.pathsep.join((str(site), str(ROOT)))
    printed = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=package, PYTHONPATH=path)
    passed, declared = (int(n) for n in re.findall(r"(\d+) passed, (\d+) xfailed", printed)[0])
    assert passed + declared == len(BEHAVIOURS) + 2 and declared < 10


@pytest.mark.slow
def test_doctor_finds_third_party_transport(site: Path, tmp_path: Path) -> None:
    path = os.pathsep.join((str(site), str(ROOT)))
    printed = run(sys.executable, "-m", "transports.surfaces.cli", "doctor", "--json", cwd=tmp_path, PYTHONPATH=path)
    assert '"name":"abp+unix","distribution":"abp-unix-socket","version":"1.0.0"' in printed


# --- one trace from an agent to the store -----------------------------------------------------------------------------


CALL = ["MCP send tools/call abp_file_generate", "tools/call abp_file_generate", "execute_tool file.generate"]


@pytest.mark.slow
def test_one_trace_spans_agent_to_store(url: str, tmp_path: Path) -> None:
    picture = tmp_path / "trace.svg"
    out = run_example("observability/one_trace.py", url, str(picture), cwd=tmp_path)
    *lines, metrics = out.splitlines()
    found = [re.fullmatch(r" *[\d.]+ ms  (agent|abp mcp) *?  ((?:  )*)(\S.*)", line.replace("agent     ", "agent    "))
             for line in lines]  # fmt: skip
    assert all(found), out
    tree = [(match[1], match[3].split("  ")) for match in found if match]
    names = [name for _, (name, *_) in tree]
    work = [*CALL, "abp.request", "abp.transfer", "abp.verify", "abp.commit"]
    assert names == ["agent: two files", *work, *work[:5], "GET", *work[5:]]
    assert [service for service, _ in tree] == [
        "agent" if name.startswith(("agent", "MCP send")) else "abp mcp" for name in names
    ]
    notes = {name: rest for _, (name, *rest) in tree[:8]}
    assert notes["abp.transfer"] == ["rung=download"] and notes["abp.commit"] == [f"artifact.size={2 << 20}"]
    assert metrics == "metrics: abp.artifact abp.browsers abp.call.duration mcp.server.operation.duration"
    root = ElementTree.parse(picture).getroot()
    bars = root.findall("{http://www.w3.org/2000/svg}rect[@class='s1']")
    assert len([bar for bar in bars if bar.get("rx")]) == names.count("GET") + 2 * (len(work) - 1) + 1
