"""Send a file to an app, get files back, and show progress.

python examples/files_in_and_out.py http://127.0.0.1:8000/ photo.png
"""

import asyncio
import sys
from pathlib import Path

from transports import ABPError, Progress, connect


def show_progress(progress: Progress) -> None:
    print(f"  {progress.stage or 'working'}: {(progress.fraction or 0):.0%}")


async def main(url: str, picture: str) -> None:
    async with connect(url, store="pictures") as app:  # the files go to the folder "pictures"
        for width in (64, 320, 640):
            result = await app.call("image.resize", {"image": Path(picture), "width": width})
            print(result.artifacts["image"].path)
        pages = await app.call("export.pages", {"count": 3}, on_progress=show_progress)
        for place, ref in pages.artifacts.items():  # "pages.0.image", …: where each file stood in the answer
            print(place, ref.size_bytes, await app.save(ref, Path("pages", ref.filename)))
        try:
            await app.call("image.resize", {"image": b"not a picture", "width": 10})
        except ABPError as error:
            print(f"refused, as it should be: {error.code}: {error.message}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
