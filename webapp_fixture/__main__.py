"""``python -m webapp_fixture [--port N]``: serve the app until Ctrl-C."""

import argparse
import asyncio
import contextlib
import sys

from webapp_fixture.server import serve


async def run(port: int) -> None:
    """Print the addresses and serve until cancelled. Port 0 takes a free one."""
    async with serve(port) as fixture:
        addresses = {"Workbench": fixture.url, "strict CSP": fixture.strict_url, "other origin": fixture.other_origin}
        addresses |= {"WebSocket": fixture.ws_url, "for an iframe": fixture.embed_url}
        sys.stdout.writelines(f"{name + ':':15}{address}\n" for name, address in addresses.items())
        sys.stdout.write("Press Ctrl-C to stop.\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="webapp_fixture", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: any free one)")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(parser.parse_args().port))


if __name__ == "__main__":
    main()
