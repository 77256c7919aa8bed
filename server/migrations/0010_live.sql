-- Runs that began by themselves when a job appeared on the nodes, the files that the server writes for them, and what
-- was told about them. Times are microseconds since the Unix epoch.

CREATE TABLE live_runs (
    run_id     TEXT   PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    -- What is the same for all processes of the job: `slurm:4711`, `node:a`.
    job_key    TEXT   NOT NULL,
    started_at BIGINT NOT NULL,
    -- NULL while the job runs.
    ended_at   BIGINT
);

CREATE TABLE live_artifacts (
    artifact_id TEXT PRIMARY KEY REFERENCES artifacts (id) ON DELETE CASCADE,
    run_id      TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    UNIQUE (run_id, name)
);

CREATE TABLE live_events (
    run_id     TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- `imbalance` or `context_leak`; each once per run.
    kind       TEXT   NOT NULL,
    text       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    -- NULL while it waits to be sent.
    sent_at    BIGINT,
    PRIMARY KEY (run_id, kind)
);

CREATE INDEX live_runs_open ON live_runs (ended_at);
