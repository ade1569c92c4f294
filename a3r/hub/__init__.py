"""The hub: one HTTP application per workspace, for workers (``/worker/v1``) and for the command line (``/api/v1``).

It knows the store and the blueprints. The leader is not known here: whoever wires the two passes callbacks.
"""
