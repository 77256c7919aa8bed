-- Runs, their files, their diagnoses (every version stays) and their shares.
-- Times are microseconds since the Unix epoch. The text also fits PostgreSQL.

CREATE TABLE runs (
    id         TEXT   PRIMARY KEY,
    title      TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    -- The newest diagnosis; repeated here so that the list needs no sub-query.
    version    BIGINT NOT NULL
);

CREATE TABLE artifacts (
    id         TEXT   PRIMARY KEY,
    run_id     TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    position   BIGINT NOT NULL,
    -- The name as uploaded. For display only: never a path, never part of a key.
    name       TEXT   NOT NULL,
    bytes      BIGINT NOT NULL,
    sha256     TEXT   NOT NULL,
    -- NULL when the file was refused and not kept.
    object_key TEXT,
    -- What was understood of it: an array, because an archive holds several (`ArtifactInfo`).
    infos      TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (run_id, position)
);

CREATE TABLE diagnoses (
    run_id         TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    version        BIGINT NOT NULL,
    verdict        TEXT   NOT NULL,
    summary        TEXT   NOT NULL,
    diagnosis      TEXT   NOT NULL,
    engine_version TEXT   NOT NULL,
    created_at     BIGINT NOT NULL,
    PRIMARY KEY (run_id, version)
);

CREATE TABLE shares (
    id           TEXT   PRIMARY KEY,
    run_id       TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    version      BIGINT NOT NULL,
    -- Only the hash: who reads the database cannot open a share.
    token_sha256 TEXT   NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    revoked_at   BIGINT
);

CREATE INDEX runs_by_age ON runs (created_at DESC);
CREATE INDEX shares_by_run ON shares (run_id, created_at DESC);
