-- What a share asks of its visitors and what it shows them. The text also fits PostgreSQL.

-- A PHC string (argon2id); NULL where the link alone is enough.
ALTER TABLE shares ADD COLUMN password_hash TEXT;
-- 1: files can be downloaded as they were uploaded.
ALTER TABLE shares ADD COLUMN raw_files BIGINT NOT NULL DEFAULT 0;
-- 1: host names, user names and paths are replaced.
ALTER TABLE shares ADD COLUMN masked BIGINT NOT NULL DEFAULT 0;
ALTER TABLE shares ADD COLUMN last_seen_at BIGINT;
