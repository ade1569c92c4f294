"""Names that people choose, in addresses: ``{client_id:name}`` takes any text, slashes and line ends included."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class NameConvertor(Convertor[str]):
    """Starlette's own convertors stop at a slash (``str``) or at a line end (``path``)."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        """Return the name as it was sent, percent signs resolved."""
        return value

    def to_string(self, value: str) -> str:
        """Return the name for an address."""
        return value


def accept_names() -> None:
    """Make ``:name`` known to the router. Safe to call twice."""
    register_url_convertor("name", NameConvertor())
