"""Typed tools: each has a pydantic model for its arguments, so that a wrong use is answered with what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from a3r.core.errors import A3RError, StoreError
from a3r.core.llm import ToolCall, ToolSpec
from a3r.leader.llm.tools import arguments_of

ArgsT = TypeVar("ArgsT", bound=BaseModel)


class Args(BaseModel):
    """Arguments of a tool; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Nothing(Args):
    """A tool without arguments."""


@dataclass(frozen=True)
class Tool(Generic[ArgsT]):
    """One tool."""

    name: str
    description: str
    args: type[ArgsT]
    work: Callable[[ArgsT], Any]
    """Returns what JSON can hold; an ``A3RError`` is told to the model."""

    def spec(self) -> ToolSpec:
        """As a provider wants it."""
        return ToolSpec(
            name=self.name, description=self.description, parameters=self.args.model_json_schema()
        )

    def use(self, arguments: dict[str, Any]) -> Any:
        """Check the arguments and work."""
        return self.work(self.args.model_validate(arguments))


class Tools:
    """Implements ``a3r.leader.llm.tools.Toolbox``."""

    def __init__(self, tools: Sequence[Tool[Any]]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def specs(self) -> tuple[ToolSpec, ...]:
        """All of them, in order."""
        return tuple(tool.spec() for tool in self._tools.values())

    def use(self, call: ToolCall) -> str:
        """The result as JSON, or what was wrong. Only a database in trouble is raised: the job is then done again."""
        tool = self._tools.get(call.name)
        if tool is None:
            return _told(
                {"error": f"there is no tool {call.name!r}; there are {', '.join(self._tools)}"}
            )
        try:
            return _told(tool.use(arguments_of(call)))
        except StoreError:
            raise
        except ValidationError as error:
            return _told({"error": _faults(error)})
        except (A3RError, ValueError) as error:
            return _told({"error": str(error)})


def _faults(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}"
        for e in error.errors(include_url=False, include_input=False)
    ]


def _told(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
