"""The ledger of every campaign in one SQLite file; the only place in a3r that speaks SQL.

Use ``a3r.store.store.Store``; what it returns is in ``a3r.store.rows`` (light: no SQL is imported with it).
"""
