"""The leader: reads goals, plans stages, turns results into decisions, and drives every campaign to its report."""
