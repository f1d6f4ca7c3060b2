-- name: create_incoming
-- Where a large piece is copied to: one connection's, for one transaction. The upserts below read
-- these tables, or what the statements "given_..." put in their place under the same names. Arrays
-- come as their text, which is sooner written than what the driver makes of lists.
CREATE TEMPORARY TABLE incoming_member (host text COLLATE "C", instance text COLLATE "C", group_name text,
    instant_ms bigint, seen_ms bigint, left_ms bigint, spent jsonb, shards text, epochs text,
    acknowledged_ms text, told_epochs text) ON COMMIT DROP;
CREATE TEMPORARY TABLE incoming_usage (destination text COLLATE "C", from_ms bigint, instant_ms bigint,
    epoch bigint, granted bigint, used bigint, denied bigint, starved_ms bigint, busy_ms bigint,
    host text COLLATE "C", instance text COLLATE "C", seen_ms bigint) ON COMMIT DROP;

-- name: given_member
-- A small piece: a column an argument.
WITH incoming_member(host, instance, group_name, instant_ms, seen_ms, left_ms, spent, shards, epochs,
    acknowledged_ms, told_epochs) AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[],
    $4::bigint[], $5::bigint[], $6::bigint[], $7::jsonb[], $8::text[], $9::text[], $10::text[], $11::text[]));

-- name: given_usage
-- A small piece: a column an argument.
WITH incoming_usage AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[],
    $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::text[],
    $12::bigint[]));

-- name: upsert_member
-- Keep each member's newest batch; a goodbye is final, and a redelivery never lengthens a life.
INSERT INTO permit_member AS stored (host, instance, group_name, instant_ms, seen_ms, left_ms, spent)
SELECT host, instance, group_name, instant_ms, seen_ms, left_ms, spent FROM incoming_member
ON CONFLICT (host, instance) DO UPDATE
SET group_name = excluded.group_name, instant_ms = excluded.instant_ms, seen_ms = excluded.seen_ms,
    left_ms = excluded.left_ms, spent = excluded.spent
WHERE stored.left_ms IS NULL AND (excluded.left_ms IS NOT NULL OR stored.instant_ms < excluded.instant_ms);

-- name: recorded_epochs
-- The newest epoch on record of some shards: no larger one that a report names is believed.
SELECT shard, epoch FROM permit_lease WHERE shard = ANY($1::integer[]);

-- name: upsert_member_epochs
-- Believed is, of each shard, the largest epoch that was on record when its report came, with the
-- instant of its first sight: no false one takes the place of a true one. What was told is kept beside
-- it. The arrays of a row belong together place by place, in any order. Places are looked up rather than
-- joined, which takes two thirds of the time where there are few.
INSERT INTO permit_member_epochs AS stored (host, instance, shards, epochs, acknowledged_ms, told_epochs)
SELECT host, instance, shards::integer[], epochs::bigint[], acknowledged_ms::bigint[], told_epochs::bigint[]
FROM incoming_member WHERE shards <> '{}'
ON CONFLICT (host, instance) DO UPDATE
SET (shards, epochs, acknowledged_ms, told_epochs) = (
    SELECT array_agg(shard), array_agg(greatest(stored.epochs[place], epoch)),
        array_agg(CASE WHEN stored.epochs[place] >= epoch THEN stored.acknowledged_ms[place] ELSE at_ms END),
        array_agg(greatest(stored.told_epochs[place], told))
    FROM (
        SELECT shard, epoch, at_ms, told, array_position(stored.shards, shard) AS place
        FROM (SELECT unnest(excluded.shards) AS shard, unnest(excluded.epochs) AS epoch,
            unnest(excluded.acknowledged_ms) AS at_ms, unnest(excluded.told_epochs) AS told) AS spoken_of
        UNION ALL
        SELECT shard, 0, 0, 0, place
        FROM (SELECT unnest(stored.shards) AS shard, generate_subscripts(stored.shards, 1) AS place) AS kept
        WHERE shard <> ALL (excluded.shards)) AS merged);

-- name: upsert_usage
-- Write an account only where the stored instant is older; equal instants change nothing.
INSERT INTO permit_usage AS stored (destination, from_ms, instant_ms, epoch, granted, used, denied,
    starved_ms, busy_ms, host, instance, seen_ms)
SELECT * FROM incoming_usage
ON CONFLICT (destination, host, instance) DO UPDATE
SET from_ms = excluded.from_ms, instant_ms = excluded.instant_ms, epoch = excluded.epoch,
    granted = excluded.granted, used = excluded.used, denied = excluded.denied,
    starved_ms = excluded.starved_ms, busy_ms = excluded.busy_ms, seen_ms = excluded.seen_ms
WHERE stored.instant_ms < excluded.instant_ms;

-- name: read_alone
-- For one transaction: one process reads for it. Several shards are read at once already, and helpers
-- would take twice the processor time in all.
SET LOCAL max_parallel_workers_per_gather = 0;

-- name: load_usage
-- The accounts of some destinations that are younger than the TTL (age < ttl is live), a row a
-- destination: who they are of, a line each (a name has no control characters), and their numbers,
-- eight bytes each, in the order of usage_columns.
SELECT destination, string_agg(host, E'\n') AS hosts, string_agg(instance, E'\n') AS instances,
    string_agg(int8send(from_ms) || int8send(instant_ms) || int8send(epoch) || int8send(granted)
        || int8send(used) || int8send(denied) || int8send(starved_ms) || int8send(busy_ms)
        || int8send(seen_ms), '') AS numbers
FROM permit_usage WHERE destination = ANY($1::text[]) AND $2::bigint - seen_ms < $3::bigint
GROUP BY destination;

-- name: load_members
-- Members younger than the keeping time, with what they acknowledged of one shard.
SELECT m.host, m.instance, m.group_name, m.instant_ms, m.seen_ms, m.left_ms,
    coalesce(h.epochs[array_position(h.shards, $1::integer)], 0) AS epoch,
    coalesce(h.acknowledged_ms[array_position(h.shards, $1::integer)], 0) AS acknowledged_ms, m.spent
FROM permit_member m LEFT JOIN permit_member_epochs h USING (host, instance)
WHERE $2::bigint - m.seen_ms < $3::bigint;

-- name: largest_reported_epoch
-- The largest epoch that anybody reported to hold of a shard; none that nobody can have reached.
SELECT greatest(coalesce(max(epoch), 0), coalesce(max(told) FILTER (WHERE told <= $2::bigint), 0))
FROM permit_member_epochs, unnest(shards, epochs, told_epochs) AS held(shard, epoch, told)
WHERE shard = $1::integer;

-- name: known_host
-- Whether any member under a host name is on record.
SELECT EXISTS (SELECT FROM permit_member WHERE host = $1::text);

-- name: remove_usage
-- Accounts past the TTL, a few at a time; those being written at this moment stay.
DELETE FROM permit_usage WHERE (destination, host, instance) IN (
    SELECT destination, host, instance FROM permit_usage WHERE $1::bigint - seen_ms >= $2::bigint
    LIMIT $3::integer FOR UPDATE SKIP LOCKED);

-- name: remove_members
-- Members past the keeping time with what they held, a few at a time; those being written
-- at this moment stay. A writer locks the member first, so nobody waits here for anybody.
WITH gone AS (
    DELETE FROM permit_member WHERE (host, instance) IN (
        SELECT host, instance FROM permit_member WHERE $1::bigint - seen_ms >= $2::bigint
        LIMIT $3::integer FOR UPDATE SKIP LOCKED)
    RETURNING host, instance
), forgotten AS (
    DELETE FROM permit_member_epochs h USING gone
    WHERE h.host = gone.host AND h.instance = gone.instance
)
SELECT count(*) FROM gone;

-- name: list_destinations
-- Destinations in ascending order of name.
SELECT name, capacity, window_seconds, policy, changed_at_ms, removed FROM permit_destination
WHERE NOT removed OR $1::boolean ORDER BY name;

-- name: put_destination
-- Create or change a destination; no row comes back where window_seconds differs.
INSERT INTO permit_destination AS stored (name, capacity, window_seconds, policy, changed_at_ms)
VALUES ($1::text, $2::bigint, $3::integer, $4::jsonb, $5::bigint)
ON CONFLICT (name) DO UPDATE
SET capacity = excluded.capacity, policy = excluded.policy, changed_at_ms = excluded.changed_at_ms,
    removed = false
WHERE stored.window_seconds = excluded.window_seconds
RETURNING (xmax = 0) AS created;

-- name: remove_destination
-- Mark a destination removed.
UPDATE permit_destination SET removed = true, changed_at_ms = $2::bigint
WHERE name = $1::text AND NOT removed;

-- name: forget_destination
-- Delete a removed destination for good.
DELETE FROM permit_destination WHERE name = $1::text AND removed;

-- name: tell_time
-- The time by which leases end: one clock for all replicas.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: count_leases
-- How many of some shards have a record.
SELECT count(*) FROM permit_lease WHERE shard = ANY($1::integer[]);

-- name: declare_leases
-- Leases that nobody has held yet, free from now on.
INSERT INTO permit_lease (shard, number, holder, expires_ms)
SELECT shard, 0, '', $2::bigint FROM unnest($1::integer[]) AS shard ORDER BY shard
ON CONFLICT (shard) DO NOTHING;

-- name: renew_leases
-- Renew what is held, be it expired, unless somebody else has taken it.
UPDATE permit_lease SET expires_ms = $3::bigint + $4::bigint
WHERE shard = ANY($1::integer[]) AND holder = $2::text;

-- name: take_leases
-- Take some free or expired leases, and all that nobody took in a lease's time; the number is raised.
WITH free AS MATERIALIZED (
    SELECT shard FROM permit_lease
    WHERE shard = ANY($1::integer[]) AND holder <> $2::text AND expires_ms <= $3::bigint
    ORDER BY expires_ms, shard
    LIMIT greatest($5::integer, (SELECT count(*) FROM permit_lease WHERE shard = ANY($1::integer[])
        AND holder <> $2::text AND expires_ms <= $3::bigint - $4::bigint))
    FOR UPDATE SKIP LOCKED)
UPDATE permit_lease AS stored
SET number = stored.number + 1, holder = $2::text, expires_ms = $3::bigint + $4::bigint
FROM free WHERE stored.shard = free.shard;

-- name: load_leases
-- The state of some leases; the memory, which is large, only of those that the asker holds anew.
SELECT shard, number, holder, expires_ms, epoch, valid_until_ms,
    CASE WHEN holder = $2::text AND known.known_number IS DISTINCT FROM number THEN memory END AS memory
FROM permit_lease
LEFT JOIN unnest($3::integer[], $4::bigint[]) AS known(known_shard, known_number)
    ON known.known_shard = shard
WHERE shard = ANY($1::integer[]) ORDER BY shard;

-- name: record_epoch
-- Record an epoch and the memory, unless somebody else has taken the lease.
UPDATE permit_lease SET epoch = $3::bigint, memory = $5::jsonb,
    valid_until_ms = greatest(valid_until_ms, $4::bigint)
WHERE shard = $1::integer AND number = $2::bigint AND epoch < $3::bigint;

-- name: tell_reader
-- Leave a reader's account of itself.
INSERT INTO permit_reader (reader, heard_ms, lag_ms, partitions, caught_up)
VALUES ($1::text, $2::bigint, $3::bigint, $4::integer[], $5::boolean)
ON CONFLICT (reader) DO UPDATE
SET heard_ms = excluded.heard_ms, lag_ms = excluded.lag_ms, partitions = excluded.partitions,
    caught_up = excluded.caught_up;

-- name: list_readers
-- The readers heard of last.
SELECT reader, heard_ms, lag_ms, partitions, caught_up FROM permit_reader
WHERE heard_ms >= $1::bigint ORDER BY heard_ms DESC LIMIT $2::integer;

-- name: forget_readers
-- Remove readers that were not heard of for long; one that is just speaking stays.
DELETE FROM permit_reader WHERE reader IN (
    SELECT reader FROM permit_reader WHERE heard_ms < $1::bigint FOR UPDATE SKIP LOCKED);

-- name: remove_reader
-- Take away the account of a reader that leaves.
DELETE FROM permit_reader WHERE reader = $1::text;

-- name: note_changes
-- Somebody of these shards came or left.
INSERT INTO permit_change AS stored (shard, number)
SELECT shard, 1 FROM unnest($1::integer[]) AS shard ORDER BY shard
ON CONFLICT (shard) DO UPDATE SET number = stored.number + 1;

-- name: list_changes
-- How often each shard was spoken of.
SELECT shard, number FROM permit_change;

-- name: release_leases
-- Let go of leases held, keeping their record; they are free from now on.
UPDATE permit_lease SET holder = '',
    expires_ms = least(expires_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE holder = $1::text AND ($2::integer[] IS NULL OR shard = ANY($2::integer[]));
