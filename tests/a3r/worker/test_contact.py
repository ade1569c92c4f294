"""What a worker's log tells of its hub, and how often a hub that is away is asked."""

import logging

from a3r.core.errors import AuthFailed, HubUnreachable
from a3r.testing.waiting import retry_until as until
from a3r.worker.contact import Contact

LOGGER = "a3r.worker.contact"


def test_a_hub_that_stays_away_is_one_line_and_asked_ever_more_rarely(caplog):
    caplog.set_level(logging.INFO, LOGGER)
    contact = Contact("heartbeats", 1.0, 10.0)
    why = ("refused", "timed out", "refused", "refused", "refused", "refused")
    waits = [contact.failed(HubUnreachable(f"no answer: {word}")) for word in why]
    assert waits == [1, 2, 4, 8, 10, 10]
    assert [r.getMessage() for r in caplog.records] == ["heartbeats: no answer: refused"]
    assert contact.worked()
    assert "works again after" in caplog.records[-1].getMessage()
    assert not contact.worked()
    assert len(caplog.records) == 2
    assert contact.failed(HubUnreachable("no answer")) == 1


def test_another_reason_is_another_line_with_what_to_do_and_no_traceback(caplog):
    contact = Contact("asking for work")
    contact.failed(HubUnreachable("no answer"))
    for _ in range(3):
        contact.failed(AuthFailed("The token is not one of this hub's.", hint="Make another."))
    said = [r.getMessage() for r in caplog.records]
    token = "asking for work: The token is not one of this hub's. (Make another.)"
    assert said == ["asking for work: no answer", token]
    assert [r.exc_info for r in caplog.records] == [None, None]


def test_where_another_loop_tells_of_the_hub_only_other_troubles_are_told(caplog):
    caplog.set_level(logging.INFO, LOGGER)
    contact = Contact("sending", tells_away=False)
    assert [contact.failed(HubUnreachable("no answer")) for _ in range(3)] == [1, 2, 4]
    assert not contact.worked()
    assert caplog.records == []
    for _ in range(3):
        contact.failed(OSError(28, "No space left on device"))
    assert contact.worked()
    assert [r.levelname for r in caplog.records] == ["ERROR", "INFO"]


def test_a_fault_of_our_own_keeps_its_traceback(caplog):
    contact = Contact("heartbeats")
    contact.failed(ValueError("broken"))
    contact.failed(ValueError("broken"))
    assert [bool(r.exc_info) for r in caplog.records] == [True]


def test_a_worker_takes_work_as_soon_as_its_hub_answers_again(lab, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    lab.hub.away = True
    lab.worker()
    until(lambda: len(caplog.records) >= 2)
    lab.hub.away = False
    until(lambda: lab.hub.claims)
    doing = [r.getMessage().partition(":")[0] for r in caplog.records[:2]]
    assert sorted(doing) == ["asking for work", "heartbeats"]
