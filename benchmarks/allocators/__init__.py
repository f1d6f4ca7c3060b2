"""Rules by which systems of this kind share a limit, on the same inputs as this project's planner.

Each rule is a file of its own with one signature, written from its public description, and where
that is silent after what its public implementation does; no code is copied. What a rule does well
or badly stands in docs/explanation/comparison.md.
"""
