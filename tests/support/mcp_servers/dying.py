"""A server that shakes hands once. Started again, it closes its stdout, and is not ended by SIGTERM.

Then it writes a file ``terminated`` into the folder of its argument."""

import json
import os
import signal
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
if (folder / "started").exists():
    signal.signal(signal.SIGTERM, lambda *_: (folder / "terminated").touch())
    os.close(1)
    while True:
        time.sleep(1)
(folder / "started").touch()
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer: dict[str, object] = {"error": {"code": -32601, "message": "Method not found"}}
    if request["method"] == "initialize":
        information = {"name": "dying", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": information}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
