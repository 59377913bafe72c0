"""A client that starts ``abp proxy`` before ``large.py`` and calls it until the proxy ends: prints the proxy's process
id, then a line for each answer, and ``end`` with the proxy's last exit status."""

import json
import subprocess
import sys
from pathlib import Path

LARGE = str(Path(__file__).parent / "mcp_servers" / "large.py")
SIZE = 150_000


def main(folder: str) -> None:
    proxy = subprocess.Popen(
        [sys.executable, "-m", "transports.surfaces.cli", "proxy", "--out", folder, "--", sys.executable, LARGE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    print(proxy.pid, flush=True)
    image = {"type": "image", "data": f"@base64:{SIZE}", "mimeType": "image/png"}
    calls = [
        (
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
        ),
        ("tools/list", {}),
        ("tools/call", {"name": "give", "arguments": {"result": {"content": [image]}}}),
        ("tools/call", {"name": "fragile", "arguments": {}}),
        ("resources/read", {"uri": f"thing://{SIZE}"}),
    ]
    try:
        for identity in range(1_000_000):
            method, params = calls[identity if identity < 2 else 2 + identity % 3]
            message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
            proxy.stdin.write(json.dumps(message).encode() + b"\n")
            proxy.stdin.flush()
            while True:
                line = proxy.stdout.readline()
                if not line.endswith(b"\n"):
                    raise BrokenPipeError
                answer = json.loads(line)
                print(answer["id"], "error" if "error" in answer else "result", flush=True)
                if answer["id"] == identity:
                    break
    except BrokenPipeError:
        proxy.stdout.close()
        print("end", proxy.wait(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
