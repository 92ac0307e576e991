"""MCP over stdin and stdout, for input that may be anything.

The SDK's own stdio transport decodes bytes that are no UTF-8 into something else, drops a line it cannot
parse without a word, and reads lines without a limit. A client that sent such a line waits for ever. This
one answers it: whatever came, its id is found if it can be, and the answer says what was wrong.
"""

import asyncio
import fcntl
import math
import os
import re
import select
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Semaphore, Thread
from typing import BinaryIO, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

__all__ = ["Unreadable", "stdio_streams"]

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_TOKENS_SCANNED = 1_000_000
KEPT_END_BYTES = 4096
MAX_ID_BYTES = 1024
DISCARD_BYTES = 1024 * 1024
LINES_AHEAD = 64
"""How many lines are read before the ones ahead of them have been taken up."""

Incoming = SessionMessage | Exception


class Unreadable(NamedTuple):
    """A line that is no message, with as much of it as could be made out."""

    reason: str
    constraint: str
    size: int
    id: str | int | None
    method: str | None


Reply = Callable[[Unreadable], JSONRPCResponse | JSONRPCError]


@asynccontextmanager
async def stdio_streams(
    reply: Reply,
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """The two streams a server runs on. While they are open, stray prints go to stderr."""
    source, sink = _claim()
    lines_in, lines = anyio.create_memory_object_stream[Line | None](math.inf)
    incoming_in, incoming = anyio.create_memory_object_stream[Incoming]()
    outgoing, outgoing_out = anyio.create_memory_object_stream[SessionMessage]()
    room = Semaphore(LINES_AHEAD)
    loop = asyncio.get_running_loop()

    def deliver(line: Line | None) -> None:
        loop.call_soon_threadsafe(lines_in.send_nowait, line)

    # One thread that only reads: a worker for each line would cost as much again as the call itself.
    Thread(target=_read_lines, args=(source, room, deliver), name="stdin", daemon=True).start()

    async def read() -> None:
        async with incoming_in, lines:
            while line := await lines.receive():
                room.release()
                message = _decode(line)
                if isinstance(message, Unreadable):
                    await _send(sink, reply(message))
                elif message is not None:
                    await incoming_in.send(SessionMessage(message))

    async def write() -> None:
        async with outgoing_out:
            async for message in outgoing_out:
                await _send(sink, message.message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        yield incoming, outgoing
        tasks.cancel_scope.cancel()


class Line(NamedTuple):
    text: bytes
    size: int
    """How long the line was; more than `text` holds when it went past the limit."""


def _read_lines(source: BinaryIO, room: Semaphore, deliver: Callable[[Line | None], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and nobody waits for the rest
        line: Line | None = Line(b"", 0)
        while line is not None:
            room.acquire()
            line = _read_line(source)
            deliver(line)


def _read_line(source: BinaryIO) -> Line | None:
    line = source.readline(MAX_LINE_BYTES)
    if not line:
        return None
    if line.endswith(b"\n") or len(line) < MAX_LINE_BYTES:
        return Line(line, len(line))
    # Too long: keep both ends, where a message names itself, and let the rest pass by.
    size, rest = len(line), line
    while not rest.endswith(b"\n") and (more := source.readline(DISCARD_BYTES)):
        size += len(more)
        rest = rest[-KEPT_END_BYTES:] + more
    return Line(line[:KEPT_END_BYTES] + rest[-KEPT_END_BYTES:], size)


def _decode(line: Line) -> JSONRPCMessage | Unreadable | None:
    text = line.text
    if line.size > len(text):
        reason = f"the message is longer than {MAX_LINE_BYTES} bytes"
        return Unreadable(reason, "max_length", line.size, *_identify(text))
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        return _explain(line, error) if text.strip() else None
    if isinstance(message, JSONRPCNotification) and b'"id"' in text and "id" in msgspec.json.decode(text):
        # An id of another kind makes a request look like a notification, which nobody would answer.
        return Unreadable("the id is neither a string nor a whole number", "json-rpc", line.size, None, None)
    return message


def _explain(line: Line, error: ValidationError) -> Unreadable:
    def unreadable(reason: str, constraint: str) -> Unreadable:
        return Unreadable(f"the message {reason}", constraint, line.size, *_identify(line.text))

    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = next((e["msg"] for e in found if e["type"] == "json_invalid"), None)
    if said is None:
        return unreadable("is not a JSON-RPC 2.0 request", "json-rpc")
    try:
        line.text.decode("utf-8")
    except UnicodeDecodeError as broken:
        return unreadable(f"is not valid UTF-8 (byte {broken.start})", "utf-8")
    if "recursion limit" in said:
        return unreadable("is nested too deeply", "max_depth")
    return unreadable(f"is not valid JSON: {said.removeprefix('Invalid JSON: ')}", "json")


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|-?\d+(?:\.\d+)?')


def _identify(text: bytes) -> tuple[str | int | None, str | None]:
    """The id and the method of a message that no parser takes, from its outermost object."""
    depth, key, expects = 0, None, b""
    found: dict[bytes, bytes] = {}
    for count, match in enumerate(_TOKENS.finditer(text)):
        token = match.group()
        if count > MAX_TOKENS_SCANNED:
            break
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
        elif depth == 1:
            if token == b":":
                expects = b":"
                continue
            if expects == b":" and key is not None:
                found.setdefault(key, token)
            key = token if token.startswith(b'"') else None
        expects = b""
    raw, method = found.get(b'"id"'), found.get(b'"method"')
    if raw is None and (late := re.search(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*}\s*$', text)):
        raw = late.group(1)
    return _id(raw), method.strip(b'"').decode("utf-8", "replace") if method else None


def _id(raw: bytes | None) -> str | int | None:
    """The id as its sender wrote it; one that cannot be given back exactly is none."""
    try:
        return msgspec.json.decode(raw or b"", type=str | int) if len(raw or b"") <= MAX_ID_BYTES else None
    except (msgspec.MsgspecError, UnicodeError):
        return None


async def _send(sink: int, message: JSONRPCMessage) -> None:
    line = message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8") + b"\n"
    if len(line) <= _room(sink):
        os.write(sink, line)  # there is room for all of it, so this does not wait
    else:
        await anyio.to_thread.run_sync(_write, sink, line)


def _room(sink: int) -> int:
    """How many bytes can be written without waiting: a pipe that has been read empty takes all it can hold."""
    if not select.select([], [sink], [], 0)[1]:
        return 0
    with suppress(OSError, AttributeError):  # no pipe, or a system that does not tell
        unread = int.from_bytes(fcntl.ioctl(sink, termios.FIONREAD, bytes(4)), sys.byteorder)
        return fcntl.fcntl(sink, fcntl.F_GETPIPE_SZ) if not unread else select.PIPE_BUF
    return select.PIPE_BUF


def _write(sink: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(sink, rest) :]


def _claim() -> tuple[BinaryIO, int]:
    """Take stdin and stdout for the protocol, so that nothing else in the process reads or writes them."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    return os.fdopen(source, "rb", closefd=False), sink
