-- Sign-in with OpenID Connect: who is who at the provider, and sign-ins that are on their way through it.
-- Times are microseconds since the Unix epoch. The text also fits PostgreSQL.

CREATE TABLE identities (
    id            TEXT   PRIMARY KEY,
    -- Together the only thing that stays the same for ever; an e-mail address may go to somebody else.
    issuer        TEXT   NOT NULL,
    subject       TEXT   NOT NULL,
    -- What the provider calls this person, for people to read; decides nothing.
    name          TEXT   NOT NULL,
    -- Whose account this opens; NULL as long as nobody has said so.
    user_id       TEXT   REFERENCES users (id) ON DELETE CASCADE,
    -- Who has shown this identity while signed in, and may take it.
    wanted_by     TEXT   REFERENCES users (id) ON DELETE CASCADE,
    created_at    BIGINT NOT NULL,
    -- When it was shown last.
    seen_at       BIGINT NOT NULL,
    UNIQUE (issuer, subject)
);

CREATE INDEX identities_by_user ON identities (user_id);

CREATE TABLE pending_sign_ins (
    -- Only the hashes: of what travels through the provider, and of what the browser keeps meanwhile.
    state_sha256   TEXT   PRIMARY KEY,
    browser_sha256 TEXT   NOT NULL,
    -- What the provider must put into its answer, and what proves to it that the same server asks.
    nonce          TEXT   NOT NULL,
    verifier       TEXT   NOT NULL,
    -- Where to go afterwards: an address of this server.
    next           TEXT   NOT NULL,
    -- Who wants to add the identity to the own account; NULL for a sign-in.
    user_id        TEXT   REFERENCES users (id) ON DELETE CASCADE,
    expires_at     BIGINT NOT NULL
);

CREATE INDEX pending_sign_ins_by_end ON pending_sign_ins (expires_at);
