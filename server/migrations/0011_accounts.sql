-- Who may do what: users, their sessions and tokens, projects that group runs, and the record of what was done.
-- Times are microseconds since the Unix epoch; yes and no are 1 and 0. The text also fits PostgreSQL.

CREATE TABLE users (
    id            TEXT   PRIMARY KEY,
    -- The name to sign in with, in lower case.
    name          TEXT   NOT NULL UNIQUE,
    -- Argon2id in PHC form; NULL for who has not chosen one yet or signs in through a proxy.
    password_hash TEXT,
    -- May do everything, in every project.
    is_admin      BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    disabled_at   BIGINT
);

CREATE TABLE sessions (
    -- Only the hash: who reads the database cannot continue a session.
    secret_sha256 TEXT   PRIMARY KEY,
    user_id       TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at    BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
);

-- Links with which somebody chooses a password, once.
CREATE TABLE set_up_links (
    secret_sha256 TEXT   PRIMARY KEY,
    -- NULL: makes the first administrator.
    user_id       TEXT   REFERENCES users (id) ON DELETE CASCADE,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
);

CREATE TABLE projects (
    id         TEXT   PRIMARY KEY,
    name       TEXT   NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

INSERT INTO projects (id, name, created_at) VALUES ('default', 'Default', 0);

CREATE TABLE memberships (
    project_id TEXT   NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    user_id    TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- viewer, editor or admin.
    role       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, user_id)
);

CREATE TABLE tokens (
    id           TEXT   PRIMARY KEY,
    -- Acts for this user, in this project, and never for more than the scopes say.
    user_id      TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    project_id   TEXT   NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name         TEXT   NOT NULL,
    -- Slugs separated by spaces: samples upload read.
    scopes       TEXT   NOT NULL,
    token_sha256 TEXT   NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    revoked_at   BIGINT,
    -- Written at most once a minute.
    used_at      BIGINT
);

-- Rows are added, never changed. Names are kept as they were, so that the record outlives its users.
CREATE TABLE audit (
    id         TEXT   PRIMARY KEY,
    created_at BIGINT NOT NULL,
    user_name  TEXT   NOT NULL,
    action     TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    address    TEXT   NOT NULL
);

-- Runs that were there before belong to the default project. No REFERENCES: SQLite cannot add such a column to a table
-- that has rows, and a project with runs is never removed.
ALTER TABLE runs ADD COLUMN project_id TEXT NOT NULL DEFAULT 'default';

CREATE INDEX runs_by_project ON runs (project_id, created_at DESC);
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX memberships_by_user ON memberships (user_id);
CREATE INDEX tokens_by_user ON tokens (user_id, created_at DESC);
CREATE INDEX audit_by_time ON audit (created_at DESC);
