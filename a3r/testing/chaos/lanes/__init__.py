"""The lanes; the long ones first, so that none of them ends alone."""

from __future__ import annotations

from a3r.testing.chaos.lane import Lane
from a3r.testing.chaos.lanes.fencing import play_fencing
from a3r.testing.chaos.lanes.gpus import play_gpus
from a3r.testing.chaos.lanes.kills import play_campaign, play_engine, play_processes
from a3r.testing.chaos.lanes.links import play_outages
from a3r.testing.chaos.lanes.returning import play_returning
from a3r.testing.chaos.lanes.tunnel import lacks as lacks_ssh
from a3r.testing.chaos.lanes.tunnel import play_tunnel
from a3r.testing.chaos.lanes.wild import play_wild


def lanes() -> list[Lane]:
    """All lanes."""
    return [
        Lane("processes", play_processes),
        Lane("wild", play_wild),
        Lane("outages", play_outages),
        Lane("tunnel", play_tunnel, lacks_ssh),
        Lane("returning", play_returning),
        Lane("campaign", play_campaign),
        Lane("training", play_engine),
        Lane("fencing", play_fencing),
        Lane("gpus", play_gpus),
    ]
