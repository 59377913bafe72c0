"""Resources that were read are kept until the server reports a change."""

from tests.conftest import Connect
from tests.support.resources import ResourceApp


async def test_resource_is_reread_after_change_of_it_or_its_parent(app_of: Connect) -> None:
    server = ResourceApp()
    picture, note = "file:///x/picture.png", "note:///long"
    async with app_of(server) as app, app.events() as events:
        for changed in ("file:///x", picture):
            await app.resources.subscribe(changed)
            for _ in range(2):
                await app.resources.read(picture)
                await app.resources.read(note)
            kept = server.reads
            server.change(changed)
            await anext(events)  # the change has arrived
            await app.resources.read(note)
            assert server.reads == kept
            await app.resources.read(picture)
            assert server.reads == kept + 1
    assert server.reads == 4
