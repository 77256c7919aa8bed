-- What several servers on one database and one bucket (replicas) have in common beside runs and accounts: changes on their
-- way, live data, and which of them leads. A server that is alone keeps all of this in its data folder and uses none of
-- these tables. Times are microseconds since the Unix epoch. The text also fits SQLite.

-- Which objects are about to be written or removed, so that what a replica has left half-done can be cleared up by another.
CREATE TABLE pending (
    id         TEXT   PRIMARY KEY,
    -- The replica that has begun the change. Whoever takes it over writes its own name here: the change can then no longer
    -- be completed by the first.
    owner      TEXT   NOT NULL,
    -- No reference: the run may not be there yet, or no longer.
    run_id     TEXT   NOT NULL,
    -- As JSON.
    claim      TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX pending_by_run ON pending (run_id);

-- One row: the replica that leads. Read in each change that only the leader may make.
CREATE TABLE live_lease (
    id     BIGINT PRIMARY KEY,
    holder TEXT   NOT NULL
);

INSERT INTO live_lease (id, holder) VALUES (1, '');

-- One row: where the log ends, and its open segment. Whoever appends locks it, so positions are visible in their order.
CREATE TABLE live_head (
    id            BIGINT PRIMARY KEY,
    position      BIGINT NOT NULL,
    -- The first position of the open segment.
    segment       BIGINT NOT NULL,
    segment_bytes BIGINT NOT NULL
);

INSERT INTO live_head (id, position, segment, segment_bytes) VALUES (1, 0, 1, 0);

-- The live log: batches as they came, and removals of nodes, in one order for all replicas.
CREATE TABLE live_batches (
    position BIGINT PRIMARY KEY,
    -- batch, or removed: the owner is a node that somebody has removed.
    kind     TEXT   NOT NULL,
    source   TEXT   NOT NULL,
    -- Whose it is, for deciding what may go: the node, or the source itself for a probe.
    owner    TEXT   NOT NULL,
    received BIGINT NOT NULL,
    -- 1: the body is gzip.
    gzip     BIGINT NOT NULL,
    -- Lines up to and with this one were kept before; an unsigned number with the same bits.
    known    BIGINT,
    body     BYTEA  NOT NULL
);

CREATE INDEX live_batches_by_owner ON live_batches (owner, received);

-- What is kept of each source.
CREATE TABLE live_sources (
    source       TEXT   PRIMARY KEY,
    -- An unsigned number with the same bits.
    acknowledged BIGINT NOT NULL,
    heard        BIGINT NOT NULL,
    node         TEXT
);

-- The log is made room in by whole segments.
CREATE TABLE live_segments (
    first BIGINT PRIMARY KEY,
    bytes BIGINT NOT NULL
);

CREATE TABLE live_segment_owners (
    first BIGINT NOT NULL REFERENCES live_segments (first) ON DELETE CASCADE,
    owner TEXT   NOT NULL,
    PRIMARY KEY (first, owner)
);

-- States that were written down into the bucket, and up to which position of the log each goes.
CREATE TABLE live_checkpoints (
    slot     TEXT   PRIMARY KEY,
    position BIGINT NOT NULL
);

-- How each live run stands, as browsers are told: written by the leader, read by the others.
CREATE TABLE live_ticks (
    run_id TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    -- As JSON.
    tick   TEXT NOT NULL
);
