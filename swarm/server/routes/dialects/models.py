"""``GET /v1/models`` and ``/v1/models/{id}``: the one served model, in a form that OpenAI's and Anthropic's SDKs both read."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm.protocol.errors import NotFoundError
from swarm.server.routes.dialects.common.serving import Serving, both


class ModelRoutes:
    """Models, over one service."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def routes(self) -> list[Route]:
        """Return the Starlette routes."""
        return [
            *both("/models", self.list, ["GET"]),
            *both("/models/{model:path}", self.read, ["GET"]),
        ]

    async def list(self, request: Request) -> Response:
        """List the served model; its id is what replies carry as ``model``."""
        self._serving.caller(request)
        model = self._model()
        page = {"first_id": model["id"], "last_id": model["id"], "has_more": False}
        return self._serving.json({"object": "list", "data": [model]} | page)

    async def read(self, request: Request) -> Response:
        """Return the served model, asked for by its id."""
        self._serving.caller(request)
        model, wanted = self._model(), request.path_params["model"]
        if wanted != model["id"]:
            raise NotFoundError(
                f"No model {wanted!r} is served here.",
                hint=f"Served is {model['id']!r}; the model of a request is not looked at.",
            )
        return self._serving.json(model)

    def _model(self) -> dict[str, Any]:
        name = self._serving.model
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "swarm",
            "type": "model",
            "display_name": name,
            "lifecycle": "active",
            "created_at": "1970-01-01T00:00:00Z",
        }
