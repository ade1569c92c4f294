"""The planner that asks a language model: it proposes and orders, code designs, counts, admits and concludes."""
