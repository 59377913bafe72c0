#!/bin/sh
# New versions of everything, with hashes and without the address of any registry.
set -eu
cd "$(dirname "$0")/.."
compile() {
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade "$@"
}
compile --group dev pyproject.toml -o requirements/dev.txt
compile --group run pyproject.toml -c requirements/dev.txt -o requirements/run.txt
compile --group pyproject.toml:fuzz -c requirements/dev.txt -o requirements/fuzz.txt
echo uv | compile - -c requirements/dev.txt -o requirements/uv.txt
compile --no-annotate --excludes requirements/penguiflow-excluded.txt requirements/penguiflow.in pyproject.toml -o requirements/penguiflow.txt
compile --no-annotate requirements/fastmcp.in -o requirements/fastmcp.txt
compile --no-annotate --extra pdf --extra images requirements/agents.in pyproject.toml -o requirements/agents.txt
