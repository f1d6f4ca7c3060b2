"""Lives made for a rule: in each, leaving the rule out shows soon."""

from __future__ import annotations

from tests.support.lives import Life, quiet
from worker_sdk.wire.distribution import Pacing

SEVERAL_HELD = Life(
    "several documents held, some lost on the way",
    demands=(0, 2000),
    capacities=(50, 97, 1000),
    extends=(False,),
    valid_for_seconds=(35, 60),
    chances=quiet(read=0.5, lost_read=0.5, lag=(0, 0, 1, 2), join=0.03, leave=0.02, new_demand=0.1),
)
RARE_READERS = Life(
    "few reads",
    demands=(0, 2000),
    capacities=(20, 50, 97, 1000),
    valid_for_seconds=(60,),
    chances=quiet(read=0.04, new_demand=0.05),
)
CLOCKS = Life(
    "differing clocks",
    demands=(0, 2000),
    skew_max_ms=(200,),
    capacities=(50, 97, 1000),
    chances=quiet(read=0.9, step=0.1, new_demand=0.1),
)
LEAVERS = Life(
    "comings and goings",
    capacities=(20, 50, 97, 1000),
    demands=(50, 2000),
    chances=quiet(read=0.9, join=0.1, leave=0.1, restart=0.1, new_demand=0.1),
)
EXPIRING = Life(
    "validity that ends",
    demands=(0, 2000),
    capacities=(50, 97, 1000),
    valid_for_seconds=(12, 20),
    chances=quiet(read=0.05, new_demand=0.1, missed_round=0.1),
)
STRAYING = Life(
    "clocks astray",
    demands=(0, 2000),
    capacities=(50, 97, 1000),
    chances=quiet(read=0.5, stray=0.05, new_demand=0.1),
)

PACED = Life("paced", demands=(2000,), capacities=(97, 1000), pacing=Pacing.EVEN, chances=quiet())
UNHEARD = Life(
    "unheard of for long, then heard, and deaf",
    demands=(2000,),
    capacities=(1000,),
    valid_for_seconds=(120,),
    members=(4, 6),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(
        read=0.9, deaf=0.15, lost_report=0.7, join=0.03, capacity=0.03, capacities=(50, 1000)
    ),
)
GROWING = Life(
    "capacities that grow, windows that nothing named covers",
    demands=(2000,),
    capacities=(20, 50),
    valid_for_seconds=(60,),
    round_windows=(1,),
    chances=quiet(
        read=0.9, pointer_delay=(0, 0, 12), set_back=0.03, capacity=0.06, capacities=(20, 50, 1000)
    ),
)
LATE_PUTS = Life(
    "puts that linger",
    demands=(0, 50, 2000),
    capacities=(50, 97, 1000),
    valid_for_seconds=(35, 60),
    chances=quiet(
        read=0.5,
        join=0.05,
        put_delay=(0, 2, 9, 15),
        pointer_delay=(0, 2, 12),
        odd_round=0.05,
        set_back=0.03,
        new_demand=0.1,
    ),
)
SHRINKING = Life(
    "a capacity that falls while few read",
    demands=(2000,),
    capacities=(97, 337),
    valid_for_seconds=(60,),
    reserves=(0,),
    chances=quiet(
        read=0.06, join=0.05, capacity=0.03, capacities=(7, 11, 97, 337), new_demand=0.01
    ),
)
LOWERED = Life(
    "a capacity that falls while few read and reports are missing",
    demands=(0, 50, 2000),
    capacities=(97, 337),
    valid_for_seconds=(60,),
    reserves=(0,),
    chances=quiet(
        read=0.3,
        deaf=0.05,
        miss_reports=0.05,
        capacity=0.05,
        capacities=(60, 80, 90, 97, 300, 337),
        new_demand=0.05,
    ),
)
GONE = Life(
    "paused beyond the last report, while newcomers press",
    demands=(2000,),
    capacities=(50, 97, 1000),
    valid_for_seconds=(120,),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(read=0.9, pause=0.08, join=0.1),
)
EXTENDED = Life(
    "what remains after validity",
    demands=(0, 2000),
    capacities=(97, 1000),
    valid_for_seconds=(12,),
    extends=(True,),
    round_windows=(1,),
    chances=quiet(read=0.9, deaf=0.03, new_demand=0.1),
)
LATE_ROUNDS = Life(
    "rounds that are missed and made up for",
    demands=(0, 2000),
    capacities=(97, 1000),
    valid_for_seconds=(60,),
    extends=(False,),
    members=(4, 6),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(
        read=0.9,
        missed_round=0.8,
        odd_round=0.15,
        leave=0.15,
        lost_goodbye=0,
        join=0.15,
        new_demand=0.05,
    ),
)
SET_BACK = Life(
    "pointers set back",
    demands=(0, 50, 2000),
    capacities=(50, 97, 1000),
    valid_for_seconds=(35, 60),
    chances=quiet(read=0.3, join=0.1, leave=0.03, set_back=0.08, new_demand=0.1),
)
FORGOTTEN = Life(
    "the database lost, and pointers set back",
    demands=(0, 2000),
    capacities=(97, 1000),
    valid_for_seconds=(35, 60),
    extends=(False,),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(read=0.3, set_back=0.08, lose_postgres=0.03, join=0.05, new_demand=0.1),
)
ANSWERS_LOST = Life(
    "answers lost on the way",
    demands=(0, 2000),
    capacities=(97, 1000),
    valid_for_seconds=(60,),
    extends=(False,),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(read=0.5, lost_read=0.85, new_demand=0.1),
)
PRESSED = Life(
    "deaf and unheard of, while newcomers press",
    demands=(2000,),
    capacities=(97, 1000),
    valid_for_seconds=(120,),
    extends=(False,),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(read=0.9, deaf=0.02, lost_report=0.6, join=0.15, leave=0.1),
)
DUST = Life(
    "a huge capacity that falls, and newcomers",
    demands=(2_000_000_000,),
    capacities=(1_000_000_000,),
    valid_for_seconds=(60,),
    reserves=(0,),
    members=(3, 6),
    chances=quiet(
        read=0.9,
        deaf=0.02,
        join=0.1,
        capacity=0.05,
        capacities=(1_000_000_000, 700_000_000, 400_000_000),
    ),
)
LOSSES = Life(
    "files lost",
    demands=(0, 2000),
    capacities=(20, 97, 1000),
    valid_for_seconds=(35, 60),
    chances=quiet(read=0.2, lose_file=0.03, roll_back=0.02, new_demand=0.1),
)
LIARS = Life(
    "reports that lie",
    demands=(0, 2000),
    capacities=(50, 97, 1000),
    valid_for_seconds=(120,),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(read=0.9, deaf=0.02, lie=0.05, lies=(1,), new_demand=0.1),
)
ODD_SHARES = Life(
    "shares that are no whole permits",
    demands=(0, 100_000_000, 2_000_000_000),
    capacities=(700_000_001, 999_999_937),
    valid_for_seconds=(120,),
    members=(4, 6),
    reserves=(0,),
    round_windows=(1,),
    chances=quiet(read=0.9, deaf=0.02, new_demand=0.08),
)
JOINS = Life("joins and capacities", chances=quiet(join=0.1, capacity=0.1))
FULL = Life("a full fleet", demands=(2000,), chances=quiet(join=0.02))
TOTAL_LOSSES = Life(
    "everything lost",
    demands=(0, 2000),
    capacities=(20, 97, 1000),
    valid_for_seconds=(60,),
    chances=quiet(read=0.9, deaf=0.1, lose_everything=0.02, new_demand=0.1),
)
