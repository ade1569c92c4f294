"""Tool calls inside generated text, found while the text is still growing: one named parser for each model family.

A parser takes the text in pieces, however it was cut, and hands out text and calls. Text goes out as soon as it cannot be
the beginning of a call; a call goes out when it is complete and its arguments parse. What does not parse stays text: an agent
can then see and punish it, and nothing that was sampled is hidden. A whole answer is parsed by the same parser, fed once.
"""

from swarm.server.tracking.toolcalls.families import ToolParser, call_name, tool_parser
from swarm.server.tracking.toolcalls.pieces import CallPiece, Parser, Piece, TextPiece
from swarm.server.tracking.toolcalls.reply import ParsedReply, parse_reply, wire_call

__all__ = [
    "CallPiece",
    "ParsedReply",
    "Parser",
    "Piece",
    "TextPiece",
    "ToolParser",
    "call_name",
    "parse_reply",
    "tool_parser",
    "wire_call",
]
