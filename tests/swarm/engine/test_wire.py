from hypothesis import given
from hypothesis import strategies as st

from swarm.protocol.errors import ConfigError, EngineFailed
from swarm.server.engine.wire import (
    Abort,
    Failure,
    FrameBuffer,
    pack,
    read_for_child,
    read_for_front,
)
from swarm.server.ports import Chunk


@given(st.lists(st.integers(0, 300)), st.integers(1, 40))
def test_frames_come_out_whole_and_in_order_however_the_bytes_are_cut(sizes, cut):
    sent = [[Abort("x" * size)] for size in sizes]
    stream = b"".join(pack(messages) for messages in sent)
    buffer = FrameBuffer()
    bodies = [b for i in range(0, len(stream), cut) for b in buffer.feed(stream[i : i + cut])]
    assert [read_for_child(body) for body in bodies] == sent


def test_messages_of_several_kinds_share_a_frame():
    messages = [Chunk("r", [1, 2], [-0.5, -0.25], "stop", [[(1, -0.5)]]), Failure("E", "m", "h")]
    (body,) = FrameBuffer().feed(pack(messages))
    assert read_for_front(body) == messages


def test_a_failure_keeps_the_class_message_and_hint_of_a_known_error():
    error = Failure.of(ConfigError("no", hint="yes")).error()
    assert (type(error), error.message, error.hint) == (ConfigError, "no", "yes")
    other = Failure.of(ZeroDivisionError("by zero")).error()
    assert isinstance(other, EngineFailed)
    assert "ZeroDivisionError: by zero" in other.message
