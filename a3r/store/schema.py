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

# The leader with a language model, revisions of clients, findings, schedules; hosts, pools, placement.
_V3 = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    detail TEXT NOT NULL,
    not_before REAL NOT NULL,
    waiting_since REAL,
    tries INTEGER NOT NULL,
    round INTEGER NOT NULL,
    result TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, not_before);
CREATE TABLE llm_calls (
    id TEXT PRIMARY KEY,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    decision TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    purpose TEXT NOT NULL,
    model TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    request TEXT NOT NULL,
    state TEXT NOT NULL,
    reserved_usd REAL NOT NULL,
    reserved_tokens INTEGER NOT NULL,
    cost_usd REAL,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    reply TEXT,
    error TEXT NOT NULL,
    at REAL NOT NULL,
    settled_at REAL,
    UNIQUE (decision, ordinal)
) STRICT;
CREATE INDEX llm_calls_of_campaign ON llm_calls (campaign_id, at);
CREATE TABLE revisions (
    id TEXT PRIMARY KEY,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    blueprint_id TEXT NOT NULL REFERENCES blueprints(id),
    ordinal INTEGER NOT NULL,
    base_sha TEXT NOT NULL,
    artifact_sha TEXT NOT NULL,
    tree_hash TEXT NOT NULL,
    diff TEXT NOT NULL,
    reason TEXT NOT NULL,
    evidence TEXT NOT NULL,
    state TEXT NOT NULL,
    "by" TEXT NOT NULL,
    at REAL NOT NULL,
    decided_at REAL,
    UNIQUE (blueprint_id, ordinal)
) STRICT;
CREATE TABLE amendments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    stage_id TEXT NOT NULL REFERENCES stages(id),
    changes TEXT NOT NULL,
    reason TEXT NOT NULL,
    "by" TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;
CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    goal_path TEXT NOT NULL,
    cron TEXT NOT NULL,
    timezone TEXT NOT NULL,
    options TEXT NOT NULL,
    state TEXT NOT NULL,
    detail TEXT NOT NULL,
    created_at REAL NOT NULL,
    fired_at REAL,
    campaign_id TEXT
) STRICT;
CREATE VIRTUAL TABLE findings USING fts5(
    text, subject, question, id UNINDEXED, campaign_id UNINDEXED, data UNINDEXED, at UNINDEXED
);
CREATE TABLE hosts (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    options TEXT NOT NULL,
    state TEXT NOT NULL,
    link TEXT NOT NULL,
    link_at REAL NOT NULL,
    detail TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE TABLE pools (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    options TEXT NOT NULL,
    state TEXT NOT NULL,
    detail TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE TABLE pool_jobs (
    id TEXT PRIMARY KEY,
    pool TEXT NOT NULL REFERENCES pools(name),
    external_id TEXT NOT NULL,
    worker_id TEXT,
    state TEXT NOT NULL,
    detail TEXT NOT NULL,
    submitted_at REAL NOT NULL,
    ended_at REAL
) STRICT;
CREATE TABLE worker_tokens (
    name TEXT PRIMARY KEY,
    token_hash TEXT NOT NULL UNIQUE,
    worker_id TEXT,
    created_at REAL NOT NULL,
    revoked_at REAL
) STRICT;
CREATE TABLE leases (
    worker_id TEXT NOT NULL,
    resource TEXT NOT NULL,
    attempt_id TEXT NOT NULL REFERENCES attempts(id),
    fencing_token INTEGER NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (worker_id, resource)
) STRICT;
CREATE TABLE commands (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    worker_id TEXT NOT NULL,
    attempt_id TEXT REFERENCES attempts(id),
    kind TEXT NOT NULL,
    args TEXT NOT NULL,
    state TEXT NOT NULL,
    result TEXT,
    created_at REAL NOT NULL,
    ended_at REAL
) STRICT;
ALTER TABLE workers ADD COLUMN state TEXT NOT NULL DEFAULT 'active';
ALTER TABLE workers ADD COLUMN pool TEXT;
ALTER TABLE attempts ADD COLUMN placement TEXT NOT NULL DEFAULT '{}';
ALTER TABLE attempts ADD COLUMN revision INTEGER NOT NULL DEFAULT 0
"""

_V4 = """
ALTER TABLE workers ADD COLUMN token_name TEXT
"""

# Every heartbeat asks what its worker has not answered.
_V5 = """
CREATE INDEX commands_by_state ON commands (state, worker_id)
"""

MIGRATIONS = (_V1, _V2, _V3, _V4, _V5)
VERSION = len(MIGRATIONS)
