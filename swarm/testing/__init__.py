"""Small real stand-ins for tests: an engine without torch, a clock that stands still, a patient assertion."""

from swarm.testing.clock import ManualClock, settle
from swarm.testing.toy_engine import Script, ToyEngine, ToyFleet
from swarm.testing.waiting import retry_until

__all__ = ["ManualClock", "Script", "ToyEngine", "ToyFleet", "retry_until", "settle"]
