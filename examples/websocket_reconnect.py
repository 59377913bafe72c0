"""Call an app again and again over a WebSocket that may break, and show when the connection is lost and restored.

python examples/websocket_reconnect.py ws://127.0.0.1:8000/abp 10
"""

import asyncio
import sys

from transports import Disconnected, Notification, WebSocketTransport, connect


def show_connection(notification: Notification) -> None:
    if notification.event.startswith("connection/"):
        print(notification.event, flush=True)


async def main(url: str, times: int) -> None:
    transport = WebSocketTransport(url, ping_interval=5, ping_timeout=5)
    async with connect(url, transport=transport, store="none:", on_notification=show_connection) as app:
        for n in range(times):
            try:
                # idempotent: listing files twice does no harm, so a call that broke off may be sent again.
                result = await app.call("file.list", timeout=30, idempotent=True)
                print(n, transport.state, len(result.artifacts), flush=True)
            except Disconnected as error:
                print(f"not there for 30 s: {error.message}")
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
