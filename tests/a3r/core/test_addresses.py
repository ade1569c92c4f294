"""Which addresses of a hub may be dialled with a token."""

import pytest

from a3r.core.addresses import is_loopback, trouble_with


@pytest.mark.parametrize(
    "url",
    [
        "https://hub.example.org:8443",
        "https://hub.example.org",
        "https://[2001:db8::1]:8443/",
        "http://127.0.0.1:9",
        "http://localhost:9",
        "http://[::1]:9",
        "unix:/a folder/hub.sock",
    ],
)
def test_tls_loopback_and_sockets_may_be_dialled(url: str) -> None:
    assert trouble_with(url) is None


@pytest.mark.parametrize("url", ["http://hub.example.org:8443", "http://10.0.0.7:1", "http://hub"])
def test_a_token_does_not_travel_in_clear_text(url: str) -> None:
    what, hint = trouble_with(url) or ("", "")
    assert "clear text" in what
    assert "host add" in hint


@pytest.mark.parametrize(
    "url",
    [
        *("", "hub", "hub:8443", "127.0.0.1:8443", "ftp://hub", "https://", "https://:8443"),
        *("https://hub:0", "https://hub:99999", "https://hub:x", "https://[::1", "unix:hub.sock"),
        *(
            "https://me:secret@hub",
            "https://:secret@hub",
            "https://@hub",
            "https://hub?token=secret",
            "https://hub#x",
        ),
    ],
)
def test_what_is_no_address_is_told_with_what_to_write(url: str) -> None:
    what, hint = trouble_with(url) or ("", "")
    assert what
    assert hint
    assert "secret" not in what + hint


def test_a_socket_is_no_address_for_another_machine() -> None:
    assert trouble_with("unix:/hub.sock", here=False) is not None


def test_loopback_is_told_from_names() -> None:
    assert is_loopback("127.8.8.8")
    assert not is_loopback("localhost.example.org")
    assert not is_loopback("")
