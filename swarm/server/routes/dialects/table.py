"""The routes of all dialects, the busiest first."""

from __future__ import annotations

from starlette.routing import Route

from swarm.server.routes.auth import Gate
from swarm.server.routes.dialects.chat.routes import ChatRoutes
from swarm.server.routes.dialects.common.serving import Serving
from swarm.server.routes.dialects.completions.routes import CompletionsRoutes
from swarm.server.routes.dialects.messages.routes import MessagesRoutes
from swarm.server.routes.dialects.models import ModelRoutes
from swarm.server.routes.dialects.responses.routes import ResponsesRoutes
from swarm.server.service.service import SwarmService


def dialect_routes(service: SwarmService, gate: Gate) -> list[Route]:
    """Return every route that an agent may call with an episode key."""
    serving = Serving(service, gate)
    tables = (ChatRoutes, MessagesRoutes, ResponsesRoutes, CompletionsRoutes, ModelRoutes)
    return [route for table in tables for route in table(serving).routes()]
