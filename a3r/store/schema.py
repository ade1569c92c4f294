"""The numbered schema scripts. Version n means that the first n were applied; a released script never changes."""

from __future__ import annotations

_V1 = """
CREATE TABLE campaigns (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    goal_text TEXT NOT NULL,
    goal_dir TEXT NOT NULL,
    goal_spec TEXT NOT NULL,
    review_mode TEXT NOT NULL,
    planner TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    stop_requested_at REAL,
    failure TEXT,
    report_path TEXT
) STRICT;
CREATE TABLE stages (
    id TEXT PRIMARY KEY,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    plan TEXT NOT NULL,
    plan_hash TEXT NOT NULL,
    analysis TEXT,
    created_at REAL NOT NULL,
    decided_at REAL,
    UNIQUE (campaign_id, ordinal)
) STRICT;
CREATE TABLE blueprints (
    id TEXT PRIMARY KEY,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    stage_id TEXT NOT NULL REFERENCES stages(id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    cell_hash TEXT NOT NULL,
    artifact_sha TEXT NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (campaign_id, name)
) STRICT;
CREATE TABLE blueprint_versions (
    blueprint_id TEXT NOT NULL REFERENCES blueprints(id),
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    artifact_sha TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (blueprint_id, version)
) STRICT;
CREATE TABLE reviews (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    blueprint_id TEXT NOT NULL REFERENCES blueprints(id),
    content_hash TEXT NOT NULL,
    verdict TEXT NOT NULL,
    "by" TEXT NOT NULL,
    note TEXT NOT NULL,
    at REAL NOT NULL,
    voided_at REAL
) STRICT;
CREATE INDEX reviews_of_blueprint ON reviews (blueprint_id, id);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    blueprint_id TEXT NOT NULL REFERENCES blueprints(id),
    position INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    state TEXT NOT NULL,
    accepted_attempt TEXT UNIQUE REFERENCES attempts(id),
    failure TEXT,
    reason TEXT NOT NULL,
    UNIQUE (blueprint_id, seed),
    CHECK ((state = 'succeeded') = (accepted_attempt IS NOT NULL))
) STRICT;
CREATE INDEX runs_of_campaign ON runs (campaign_id, position);
CREATE TABLE attempts (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs(id),
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    queue_order INTEGER NOT NULL UNIQUE,
    ordinal INTEGER NOT NULL,
    state TEXT NOT NULL,
    nonce TEXT NOT NULL UNIQUE,
    fencing_token INTEGER NOT NULL,
    worker_id TEXT,
    lease_s REAL NOT NULL,
    lease_expires_at REAL,
    heartbeat_at REAL,
    step INTEGER,
    detail TEXT NOT NULL,
    stop_reason TEXT,
    failure TEXT,
    reason TEXT NOT NULL,
    summary TEXT NOT NULL,
    queued_at REAL NOT NULL,
    leased_at REAL,
    unreachable_at REAL,
    ended_at REAL,
    UNIQUE (run_id, ordinal)
) STRICT;
CREATE INDEX attempts_of_campaign ON attempts (campaign_id, state);
CREATE UNIQUE INDEX one_live_attempt_a_run ON attempts (run_id)
    WHERE state NOT IN ('succeeded', 'failed', 'cancelled', 'lost');
CREATE UNIQUE INDEX a_fencing_token_is_used_once ON attempts (fencing_token) WHERE fencing_token > 0;
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;
CREATE TABLE steps (
    attempt_id TEXT NOT NULL REFERENCES attempts(id),
    step INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (attempt_id, step)
) STRICT;
CREATE TABLE eval_rounds (
    attempt_id TEXT NOT NULL REFERENCES attempts(id),
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (attempt_id, name)
) STRICT;
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    inventory TEXT NOT NULL,
    registered_at REAL NOT NULL,
    seen_at REAL NOT NULL
) STRICT;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    attempt_id TEXT REFERENCES attempts(id),
    attempt_seq INTEGER,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (attempt_id, attempt_seq)
) STRICT;
CREATE INDEX events_of_campaign ON events (campaign_id, seq);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    stage_id TEXT REFERENCES stages(id),
    what TEXT NOT NULL,
    why TEXT NOT NULL,
    evidence TEXT NOT NULL,
    at REAL NOT NULL
) STRICT
"""

# Separate from version 1 so that the step from an older file is exercised from the first release on.
_V2 = """
CREATE TABLE deviations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    blueprint_id TEXT REFERENCES blueprints(id),
    attempt_id TEXT REFERENCES attempts(id),
    what TEXT NOT NULL,
    data TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;
CREATE INDEX attempts_by_state ON attempts (state, queue_order)
"""

MIGRATIONS = (_V1, _V2)
VERSION = len(MIGRATIONS)
