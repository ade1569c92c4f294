"""What a hub or a record says cannot harm a server, nor the command that lists servers."""

import asyncio
import contextlib
import os

import pytest
from aiohttp import web
from pydantic import ValidationError

from swarm.cli.edge import read_secret, read_token
from swarm.cli.servers import local_rows, table
from swarm.protocol.errors import AuthError, ConfigError
from swarm.protocol.servers import AnnounceReply, ServerRecord
from swarm.protocol.states import EngineState
from swarm.server.announce import LONGEST_ANSWER, Announcer, check_address, read_hub_token
from swarm.server.registry import LocalServer, birth_of, enter
from swarm.testing import retry_until

RECORD = ServerRecord(
    server_id="0" * 16, url="http://127.0.0.1:1", state=EngineState.OFFLINE, pid=1, version="1"
)


@pytest.mark.parametrize("ttl", ["0", "-5", "1e-9", "1e999", "NaN", '"NaN"'])
def test_a_time_to_live_that_would_make_a_server_ask_without_end_is_no_answer(ttl):
    with pytest.raises(ValidationError):
        AnnounceReply.model_validate_json(f'{{"ttl_s": {ttl}}}')


@pytest.mark.parametrize("body", [b'{"ttl_s": -5}', b"x" * (LONGEST_ANSWER + 1), b"\xff<html>"])
async def test_after_a_useless_answer_the_server_waits_before_it_asks_again(body, caplog):
    count = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        return web.Response(body=body)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    task = asyncio.create_task(Announcer(f"http://127.0.0.1:{port}", "token", lambda: RECORD).run())
    try:
        await retry_until(lambda: "Not announced" in caplog.text)
        assert count == 1
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await runner.cleanup()


@pytest.mark.parametrize("url", ["http://[", "http://h:99999", "http://h:x", "ftp://h", "http://"])
def test_an_address_that_cannot_be_read_is_told_as_one(url):
    with pytest.raises(ConfigError, match="not a URL"):
        check_address(url)


def test_records_and_token_files_with_anything_in_them_are_listed_without_a_traceback(tmp_path):
    folder, state = tmp_path / "servers", tmp_path / "state"
    state.mkdir()
    (state / "tokens.json").write_bytes(b"\xff\xfe")
    for number, url in enumerate(("http://[", "http://127.0.0.1:1")):
        server = LocalServer(
            server_id=f"\x1b[31m{number}",
            url=url,
            pid=os.getpid(),
            born=birth_of(os.getpid()),
            state_dir=str(state),
            version="v" * 100,
        )
        enter(folder, server)
    (folder / "junk.json").write_bytes(b"\xff{")
    (folder / "folder.json").mkdir()
    rows = local_rows(folder)
    assert [row["state"] for row in rows] == [None, None]
    assert all(line.isprintable() for line in table(rows))


def test_a_token_file_that_is_not_text_is_told_as_such(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"\xff\xfe")
    for read in (
        lambda: read_token(path),
        lambda: read_secret(path, "NONE", "the token"),
    ):
        with pytest.raises(AuthError, match="not text"):
            read()
    with pytest.raises(ConfigError, match="not text"):
        read_hub_token(path)
