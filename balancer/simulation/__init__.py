"""A seeded fleet on a virtual clock, running the real planner and the real engine.

No rule is written a second time here: what a member may spend is the engine's answer, what is
published is the planner's plan. Only time, the network and the members' work are made up.
"""
