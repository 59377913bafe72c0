"""Call an app over a WebSocket: python examples/websocket_client.py ws://127.0.0.1:8000/abp"""

import asyncio
import sys

from transports import connect


async def main(url: str) -> None:
    async with connect(url) as app:
        result = await app.call("data.csv", {"rows": [{"product": "tea", "sold": 12}]})
        print(result.summary())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
