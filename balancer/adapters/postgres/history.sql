-- name: insert_history_round
-- Keep a round as a whole; the same again changes nothing.
INSERT INTO permit_history_round (shard, planned_at_ms, epoch, kind, outcome, took_ms, destinations,
    entries, holds, held_points, sentence)
VALUES ($1::integer, $2::bigint, $3::bigint, $4::text, $5::text, $6::bigint, $7::integer, $8::bigint,
    $9::bigint, $10::bigint, $11::text)
ON CONFLICT DO NOTHING;

-- name: insert_history_destinations
-- Keep the destinations of a round.
INSERT INTO permit_history_destination (destination, shard, epoch, kind, planned_at_ms, from_ms,
    until_ms, window_seconds, capacity, members, asked_permits, wanted_permits, used_permits,
    denied_permits, level_permits, given_points, held_points, free_points, shadow_moved_points)
SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[],
    $7::bigint[], $8::integer[], $9::bigint[], $10::integer[], $11::bigint[], $12::bigint[],
    $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[],
    $19::bigint[])
ON CONFLICT DO NOTHING;

-- name: insert_history_details
-- Keep the members of a round, one row a destination.
INSERT INTO permit_history_detail (destination, epoch, planned_at_ms, from_ms, until_ms,
    window_seconds, capacity, whole, left_out, members)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[],
    $7::bigint[], $8::boolean[], $9::integer[], $10::json[])
ON CONFLICT DO NOTHING;

-- name: load_history_in_force
-- The newest whole record of a destination's members that has begun, and additions to it.
WITH last AS (
    SELECT planned_at_ms, epoch FROM permit_history_detail
    WHERE destination = $1::text AND whole
        AND ($2::bigint IS NULL OR (planned_at_ms <= $2::bigint AND from_ms <= $2::bigint))
    ORDER BY planned_at_ms DESC, epoch DESC LIMIT 1
)
SELECT destination, epoch, planned_at_ms, from_ms, until_ms, window_seconds, capacity, whole, left_out,
    members
FROM permit_history_detail
WHERE destination = $1::text
    AND ($2::bigint IS NULL OR (planned_at_ms <= $2::bigint AND from_ms <= $2::bigint))
    AND planned_at_ms >= coalesce((SELECT planned_at_ms FROM last), 0)
ORDER BY planned_at_ms, epoch;

-- name: load_history_details
-- The members of a destination, round by round, behind the last one read: a few rounds at a time.
SELECT destination, epoch, planned_at_ms, from_ms, until_ms, window_seconds, capacity, whole, left_out,
    members
FROM permit_history_detail
WHERE destination = $1::text AND (planned_at_ms, epoch) > ($2::bigint, $3::bigint)
    AND planned_at_ms < $4::bigint
ORDER BY planned_at_ms, epoch LIMIT $5::integer;

-- name: load_history_spans
-- A destination over ten minutes each; those that overlap the stretch asked for.
SELECT destination, shard, from_ms, rounds, planned_rounds, capacity_least, capacity_most,
    members_least, members_most, asked_permits, asked_most, wanted_permits, used_permits,
    denied_permits, denied_most, level_least, level_most, given_points, held_points, held_most,
    free_points, shadow_moved_most
FROM permit_history_span
WHERE destination = $1::text AND from_ms + 600000 > $2::bigint AND from_ms < $3::bigint
ORDER BY from_ms LIMIT $4::integer;

-- name: load_history_destinations
-- A destination round by round.
SELECT destination, shard, epoch, kind, planned_at_ms, from_ms, until_ms, window_seconds, capacity,
    members, asked_permits, wanted_permits, used_permits, denied_permits, level_permits, given_points,
    held_points, free_points, shadow_moved_points
FROM permit_history_destination
WHERE destination = $1::text AND planned_at_ms >= $2::bigint AND planned_at_ms < $3::bigint
ORDER BY planned_at_ms, epoch LIMIT $4::integer;

-- name: load_history_rounds
-- The rounds of the shard that a destination was last planned in.
SELECT shard, epoch, kind, outcome, planned_at_ms, took_ms, destinations, entries, holds, held_points,
    sentence
FROM permit_history_round
WHERE shard = coalesce(
        (SELECT shard FROM permit_history_destination WHERE destination = $1::text
            ORDER BY planned_at_ms DESC LIMIT 1),
        (SELECT shard FROM permit_history_span WHERE destination = $1::text
            ORDER BY from_ms DESC LIMIT 1))
    AND planned_at_ms >= $2::bigint AND planned_at_ms < $3::bigint
ORDER BY planned_at_ms, epoch LIMIT $4::integer;

-- name: load_history_at
-- The last round of a destination that was planned and had begun at an instant.
SELECT destination, shard, epoch, kind, planned_at_ms, from_ms, until_ms, window_seconds, capacity,
    members, asked_permits, wanted_permits, used_permits, denied_permits, level_permits, given_points,
    held_points, free_points, shadow_moved_points
FROM permit_history_destination
WHERE destination = $1::text AND planned_at_ms <= $2::bigint AND from_ms <= $2::bigint
ORDER BY planned_at_ms DESC, epoch DESC LIMIT 1;

-- name: load_history_span_at
-- The ten minutes of a destination that an instant is in, or the last before.
SELECT destination, shard, from_ms, rounds, planned_rounds, capacity_least, capacity_most,
    members_least, members_most, asked_permits, asked_most, wanted_permits, used_permits,
    denied_permits, denied_most, level_least, level_most, given_points, held_points, held_most,
    free_points, shadow_moved_most
FROM permit_history_span WHERE destination = $1::text AND from_ms <= $2::bigint
ORDER BY from_ms DESC LIMIT 1;

-- name: roll_up_history
-- Sum up some old rounds of destinations over ten minutes; whoever else does so takes others.
WITH old AS (
    DELETE FROM permit_history_destination WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM permit_history_destination WHERE planned_at_ms < $1::bigint
        ORDER BY planned_at_ms LIMIT $2::integer FOR UPDATE SKIP LOCKED))
    RETURNING *
), summed AS (
    INSERT INTO permit_history_span AS stored (destination, shard, from_ms, rounds, planned_rounds,
        capacity_least, capacity_most, members_least, members_most, asked_permits, asked_most,
        wanted_permits, used_permits, denied_permits, denied_most, level_least, level_most,
        given_points, held_points, held_most, free_points, shadow_moved_most)
    SELECT destination, max(shard), planned_at_ms / 600000 * 600000 AS span, count(*),
        count(asked_permits), min(capacity), max(capacity), min(members), max(members),
        coalesce(sum(asked_permits), 0), max(asked_permits), coalesce(sum(wanted_permits), 0),
        coalesce(sum(used_permits), 0), coalesce(sum(denied_permits), 0), max(denied_permits),
        min(level_permits), max(level_permits), sum(given_points), sum(held_points),
        max(held_points), sum(free_points), max(shadow_moved_points)
    FROM old GROUP BY destination, span ORDER BY destination, span
    ON CONFLICT (destination, from_ms) DO UPDATE
    SET shard = excluded.shard,
        rounds = stored.rounds + excluded.rounds,
        planned_rounds = stored.planned_rounds + excluded.planned_rounds,
        capacity_least = least(stored.capacity_least, excluded.capacity_least),
        capacity_most = greatest(stored.capacity_most, excluded.capacity_most),
        members_least = least(stored.members_least, excluded.members_least),
        members_most = greatest(stored.members_most, excluded.members_most),
        asked_permits = stored.asked_permits + excluded.asked_permits,
        asked_most = greatest(stored.asked_most, excluded.asked_most),
        wanted_permits = stored.wanted_permits + excluded.wanted_permits,
        used_permits = stored.used_permits + excluded.used_permits,
        denied_permits = stored.denied_permits + excluded.denied_permits,
        denied_most = greatest(stored.denied_most, excluded.denied_most),
        level_least = least(stored.level_least, excluded.level_least),
        level_most = greatest(stored.level_most, excluded.level_most),
        given_points = stored.given_points + excluded.given_points,
        held_points = stored.held_points + excluded.held_points,
        held_most = greatest(stored.held_most, excluded.held_most),
        free_points = stored.free_points + excluded.free_points,
        shadow_moved_most = greatest(stored.shadow_moved_most, excluded.shadow_moved_most)
)
SELECT count(*) FROM old;

-- name: remove_history_spans
-- Remove some ten minutes that are old.
DELETE FROM permit_history_span WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM permit_history_span WHERE from_ms < $1::bigint
    LIMIT $2::integer FOR UPDATE SKIP LOCKED));

-- name: remove_history_rounds
-- Remove some rounds that are old.
DELETE FROM permit_history_round WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM permit_history_round WHERE planned_at_ms < $1::bigint
    LIMIT $2::integer FOR UPDATE SKIP LOCKED));

-- name: remove_history_details
-- Remove some rounds' members whose windows are long over.
DELETE FROM permit_history_detail WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM permit_history_detail WHERE until_ms < $1::bigint
    LIMIT $2::integer FOR UPDATE SKIP LOCKED));
