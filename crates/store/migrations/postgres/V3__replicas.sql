-- Several processes on one database.

-- Which office this is: processes that share something else, such as NATS, tell it from others by this.
CREATE TABLE office (
    one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    id UUID NOT NULL DEFAULT gen_random_uuid()
);

INSERT INTO office DEFAULT VALUES;

-- Nothing in the tables below is worth a sync: it is told again within seconds.

CREATE UNLOGGED TABLE replicas (
    id UUID PRIMARY KEY,
    seen_at TIMESTAMPTZ NOT NULL,
    -- Whether hints reach it by NATS.
    hears BOOLEAN NOT NULL
);

-- What was spent of limits that hold for all processes together: the moment at which all of it is earned back.
CREATE UNLOGGED TABLE allowances (
    of TEXT NOT NULL,
    key TEXT NOT NULL,
    earned_at TIMESTAMPTZ NOT NULL,
    refused BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (of, key)
) WITH (fillfactor = 50);
