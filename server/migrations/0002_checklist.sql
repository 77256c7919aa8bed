-- What people say of checklist items, and the run that is to prove a fix. Both are histories: rows are added, never
-- changed; the newest counts.

CREATE TABLE item_notes (
    id         TEXT   PRIMARY KEY,
    run_id     TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- Slug of the item.
    item       TEXT   NOT NULL,
    -- Slug of the person's own status; NULL for a note alone.
    status     TEXT,
    note       TEXT   NOT NULL,
    author     TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE after_runs (
    id           TEXT   PRIMARY KEY,
    run_id       TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    after_run_id TEXT   NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    created_at   BIGINT NOT NULL
);

CREATE INDEX item_notes_by_run ON item_notes (run_id, item, created_at);
CREATE INDEX after_runs_by_run ON after_runs (run_id, created_at);
