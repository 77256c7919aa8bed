-- Work that nobody waits for: a worker takes it when it has time, and another one when that worker is no more. And how long
-- the runs of a project are kept. Times are microseconds since the Unix epoch. The text also fits PostgreSQL.

CREATE TABLE jobs (
    id         TEXT   PRIMARY KEY,
    kind       TEXT   NOT NULL,
    -- What it is about: the id of an artifact, a run or a project. One job of a kind is enough for each.
    subject    TEXT   NOT NULL,
    -- With the run or the project the job goes too.
    run_id     TEXT   REFERENCES runs (id) ON DELETE CASCADE,
    project_id TEXT   REFERENCES projects (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    -- Not before this.
    due_at     BIGINT NOT NULL,
    -- How often it was begun; counted before it begins, so that also one that ends its worker comes to an end.
    attempts   BIGINT NOT NULL,
    -- Who works on it, and until when the others believe so. Whoever ends it must still be its holder.
    holder     TEXT,
    held_until BIGINT,
    -- Why the last attempt failed.
    error      TEXT,
    -- It is not tried any more.
    given_up_at BIGINT,
    UNIQUE (kind, subject)
);

CREATE INDEX jobs_by_time ON jobs (due_at);
CREATE INDEX jobs_by_run ON jobs (run_id);

-- How long runs are kept after their last change, and how many bytes of files; NULL: without end.
ALTER TABLE projects ADD COLUMN keep_days BIGINT;
ALTER TABLE projects ADD COLUMN keep_bytes BIGINT;
