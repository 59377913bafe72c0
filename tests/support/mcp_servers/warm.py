"""A server of this folder without its start: one process has imported everything and forks for each client.

Importing the MCP SDK takes most of a second of processor time, which a hundred tests need not each pay. The command
that a transport starts hands its stdin and stdout to the fork and waits for its end: to the transport it is the server.
"""

import asyncio
import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Run by ``python -S -I``, which starts in 20 ms.
_FRONT = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    "socket.send_fds(s, [' '.join(['.', *sys.argv[2:]]).encode()], [0, 1]); s.recv(1)"
)


@contextmanager
def warm_target(script: str) -> Iterator[str]:
    """``mcp+stdio:`` with the server that ``main`` of ``script`` runs, while the process behind it runs.

    Words after the target are the arguments of ``main``.
    """
    with tempfile.TemporaryDirectory(prefix="abp-warm-") as folder:
        path, front = Path(folder) / "socket", Path(folder) / "front.py"
        front.write_text(_FRONT, encoding="utf-8")
        command = [sys.executable, __file__, str(path), script]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield f"mcp+stdio:{sys.executable} -S -I {front} {path}"
            finally:
                process.kill()


def _serve(path: str, script: str) -> None:
    main = importlib.import_module(script).main
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            words, files, _, _ = socket.recv_fds(client, 1000, 2)
            if os.fork() == 0:
                listener.close()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                asyncio.run(main(*words.decode().split()[1:]))
                os._exit(0)
            for file in (*files, client.detach()):
                os.close(file)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
