"""Call an app without asyncio, from two threads at once.

python examples/blocking.py http://127.0.0.1:8000/ photo.png
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transports import ABPError
from transports.sync import connect


def main(url: str, picture: str) -> None:
    with connect(url) as app, ThreadPoolExecutor() as pool:

        def resize(width: int) -> str:
            result = app.call("image.resize", {"image": Path(picture), "width": width}, timeout=30)
            return f"{width} {result.artifacts['image'].path}"

        print(*pool.map(resize, (64, 320)), sep="\n")
        try:  # a session survives the errors of the app
            app.call("image.resize", {"image": b"not a picture", "width": 10})
        except ABPError as error:
            print(f"refused: {error.code}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
