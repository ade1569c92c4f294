"""The first contact with a GPU: checks of what could not be run without one, and a report. ``make gpu-check``.

``docs/gpu-untested.md`` lists the same checks by the same names.
"""
