"""The client's ledger: what it says of each finish, also when its process died in the middle of a line."""

from swarm.protocol.episodes import FinishReply
from swarm.protocol.states import EpisodeState
from swarm.testing.chaos.ledger import Claim, Ledger, answers, read_claims


def reply(episode_id, *, accepted=True, reason=""):
    return FinishReply(
        episode_id=episode_id, state=EpisodeState.FINISHED, accepted=accepted, reason=reason, step=0
    )


def test_a_ledger_tells_what_was_sent_and_what_was_answered(tmp_path):
    path = tmp_path / "a.ledger"
    ledger = Ledger(path)
    ledger.sending("a", 0.5)
    ledger.sending("b", 1.0)
    ledger.answered(reply("b", accepted=False, reason="late"))
    assert read_claims(path) == {
        "a": Claim("a", 0.5),
        "b": Claim("b", 1.0, answered=True, reason="late"),
    }
    assert answers(path) == 1


def test_a_later_process_goes_on_in_the_same_ledger(tmp_path):
    path = tmp_path / "a.ledger"
    Ledger(path).sending("a", 0.5)
    Ledger(path).answered(reply("a"))
    assert read_claims(path) == {"a": Claim("a", 0.5, answered=True, accepted=True)}


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "a.ledger"
    Ledger(path).sending("a", 0.5)
    path.write_bytes(path.read_bytes() + b'{"episode_id": "b", "rew')
    assert read_claims(path) == {"a": Claim("a", 0.5)}


def test_no_ledger_claims_nothing(tmp_path):
    assert read_claims(tmp_path / "none") == {}
    assert answers(tmp_path / "none") == 0
