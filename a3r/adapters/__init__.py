"""Outside programs behind the Protocols of ``a3r.core.ports``. The only place that imports their libraries."""
