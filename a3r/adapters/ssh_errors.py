"""What OpenSSH says when a connection does not come about, as errors that tell what to do."""

from __future__ import annotations

from a3r.core.errors import HostError

Rule = tuple[str, tuple[str, ...], str, str]

RULES: tuple[Rule, ...] = (
    (
        "changed_key",
        ("REMOTE HOST IDENTIFICATION HAS CHANGED", "host key mismatch"),
        "The key of {address!r} is not the one that is known: another machine answers, or the host was set up anew.",
        "If you know why it changed: `ssh-keygen -R HOST`, then add the host again with --accept-key.",
    ),
    (
        "unknown_key",
        ("Host key verification failed", "host key is known for"),
        "The key of {address!r} is not known here.",
        "Compare its fingerprint with one from the host itself, then accept it: --accept-key SHA256:...",
    ),
    (
        "auth",
        ("Permission denied", "Too many authentication failures", "no mutual signature"),
        "{address!r} takes none of the keys that ssh offers.",
        "`ssh-copy-id` brings your key there; a key with a passphrase must be in the agent. a3r never asks for a password.",
    ),
    (
        "forward",
        ("remote port forwarding failed", "streamlocal"),
        "{address!r} does not let a way back be opened (forwarding of Unix sockets is off there).",
        "Its sshd needs AllowStreamLocalForwarding; or give the hub a door of its own and --hub-url.",
    ),
    (
        "unreachable",
        (
            "Could not resolve",
            "Connection refused",
            "timed out",
            "No route to host",
            "Network is unreachable",
            "not responding",
            "Connection closed",
            "Connection reset",
            "Broken pipe",
            "banner exchange",
        ),
        "{address!r} can not be reached",
        "Is the host up, and are name, port and network right? `ssh -v` with the same address says more.",
    ),
)
"""(kind, marks in stderr, what happened, what to do); the first that fits counts."""


def refusal(address: str, stderr: str) -> HostError:
    """The error for ssh's exit code 255; ``details["kind"]`` is that of the rule, else ``other``."""
    said = last_line(stderr)
    for kind, marks, what, hint in RULES:
        if any(mark.lower() in stderr.lower() for mark in marks):
            words = what.format(address=address)
            if kind == "unreachable":
                words = f"{words}: {said}"
            return HostError(words, hint=hint, kind=kind)
    return HostError(
        f"ssh to {address!r} failed: {said or 'it gave no reason'}",
        hint="`ssh -v` with the same address says more.",
        kind="other",
    )


def last_line(text: str) -> str:
    """The last line that says something; empty when none does."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" \r@")]
    return lines[-1] if lines else ""
