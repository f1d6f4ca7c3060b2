"""Strategies: how the points of one destination are divided among its live members.

Each strategy is one function, from `Claims` and a budget in points to a `Division`. None knows
documents, time or holds: what must be reserved comes in as a lower bound, and what may be given as
the budget.
"""
