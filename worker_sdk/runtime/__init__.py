"""What runs behind a client: one member's state under a lock, two threads, and their timetable.

`member` joins the engine with a clock and a lock, `background` owns the threads, `timetable` says
when they act, `options` what a client was told, `processes` what forks and exits mean.
"""
