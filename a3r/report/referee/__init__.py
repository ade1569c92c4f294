"""The referee: whether a run's own record lets it stand as evidence. Pure: records in, verdicts out.

``referee`` judges every run that has an accepted attempt, by rules that are fixed before anything runs. A rule about *how* a run
was made (weights, evaluator, seed, consumed batch, overlap) may call it invalid, which excludes it from results with that
reason. A rule about *how the run came out* (rewards, entropy, lengths, gradients) may only call it suspect: to leave out runs for
their outcome would bend every mean, so a suspect run stays in and is named.
"""

from a3r.report.referee.judge import referee
from a3r.report.referee.verdict import Finding, Grade, RefereeVerdict

__all__ = ["Finding", "Grade", "RefereeVerdict", "referee"]
