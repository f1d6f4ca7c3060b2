"""What members weigh, by a policy's rules.

Decides which rule fits which member. Knows no share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate

import numpy as np

from balancer.core.columns import SMALL, Ints, ints
from balancer.core.model import MemberRecord, WeightRule
from worker_sdk.wire.distribution import Member


def weights_of(
    rules: Sequence[WeightRule],
    members: Sequence[Member],
    records: Mapping[Member, MemberRecord],
) -> Ints:
    """Return each member's weight: of the first rule that fits, 1 where none does.

    Names are compared byte for byte, as everywhere.
    """
    if not rules:
        return np.ones(len(members), dtype=SMALL)
    compiled = [
        (rule.weight, rule.group, None if rule.host is None else re.compile(translate(rule.host)))
        for rule in rules
    ]
    known: dict[tuple[str, str | None], int] = {}
    weights = []
    for member in members:
        record = records.get(member)
        key = (member[0], None if record is None else record.group)
        if key not in known:
            known[key] = next(
                (
                    weight
                    for weight, group, pattern in compiled
                    if (group is None or group == key[1])
                    and (pattern is None or pattern.match(key[0]))
                ),
                1,
            )
        weights.append(known[key])
    return ints(weights)
