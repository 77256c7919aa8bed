-- Files that arrive in several requests, so that a broken connection costs only what was on its way. Times are microseconds
-- since the Unix epoch. The text also fits PostgreSQL.

CREATE TABLE uploads (
    id         TEXT   PRIMARY KEY,
    -- Who sends it: `user:` or `token:` with the id, or nothing where there are no accounts. Nobody else adds to it or uses it.
    owner      TEXT   NOT NULL,
    -- The name as sent. For display only.
    name       TEXT   NOT NULL,
    -- How long the file is, and how much of it is kept.
    bytes      BIGINT NOT NULL,
    received   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    -- When it goes unless more of it arrives.
    expires_at BIGINT NOT NULL
);

-- Each is an object of its own, so that any server can add the next one.
CREATE TABLE upload_parts (
    upload_id TEXT   NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
    -- Where in the file it begins.
    position  BIGINT NOT NULL,
    bytes     BIGINT NOT NULL,
    -- Name of its object.
    part      TEXT   NOT NULL,
    PRIMARY KEY (upload_id, position)
);

CREATE INDEX uploads_by_owner ON uploads (owner);
