"""A corpus of SYNTHETIC runs with seeded faults, and how well the referee tells them from clean ones. For tests and ``make trust``.

Every case is a pure function of its name and number. Faults come in random strength, weak ones included, so that recall is measured
and not arranged; among the clean runs are those that look faulty and are not. The rules' levels were chosen before this corpus.
"""
