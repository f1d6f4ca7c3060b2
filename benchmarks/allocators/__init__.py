"""Rules by which systems of this kind share a limit, on the same inputs as this project's planner.

Each rule is a file of its own, written from its public description, with one signature. None is
taken from another's code. What a rule does well or badly stands in docs/explanation/comparison.md.
"""
