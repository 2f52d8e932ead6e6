-- A household is one owner's agents and that person. Agents join it with a token: the owner's, or a machine's.
CREATE TABLE households (
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE household_tokens (
    id INTEGER PRIMARY KEY,
    public_id BLOB NOT NULL UNIQUE,
    household_id INTEGER NOT NULL REFERENCES households,
    -- The SHA-256 of the token, which itself is never stored.
    hash TEXT NOT NULL UNIQUE,
    -- 1 for the owner's token, of which a household has one.
    owner INTEGER NOT NULL,
    label TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT;

CREATE INDEX household_tokens_household ON household_tokens (household_id, id);
CREATE UNIQUE INDEX household_tokens_one_owner ON household_tokens (household_id) WHERE owner = 1;

ALTER TABLE agents ADD COLUMN household_id INTEGER REFERENCES households;
ALTER TABLE agents ADD COLUMN household_token_id INTEGER REFERENCES household_tokens;
-- 1 for a person. Only the office writes it, for whoever has the owner's token.
ALTER TABLE agents ADD COLUMN person INTEGER NOT NULL DEFAULT 0;

CREATE INDEX agents_household ON agents (household_id, name) WHERE household_id IS NOT NULL;
CREATE INDEX agents_household_token ON agents (household_token_id) WHERE household_token_id IS NOT NULL;
CREATE UNIQUE INDEX agents_one_person ON agents (household_id) WHERE person = 1;
