-- A database as schema version 1 left it: one finished run. Never edit: new versions must read it.
PRAGMA user_version = 1;
PRAGMA application_id = 1630761473;
PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
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
INSERT INTO "attempts" VALUES('at-00000z8dkphs1','run-00000z881knfn','old-k43074pz',1,1,'succeeded','0c276216640cd5e18c31f7c2ecb50be7',1,'w1',10.0,1010.0,1000.0,3,'',NULL,NULL,'','{}',1000.0,1000.0,NULL,1000.0);
CREATE TABLE blueprint_versions (
    blueprint_id TEXT NOT NULL REFERENCES blueprints(id),
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    artifact_sha TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (blueprint_id, version)
) STRICT;
INSERT INTO "blueprint_versions" VALUES('bp-00000z8p0rk5w',1,'{"clients":[{"arguments":{},"entry":"client.py","name":"client","on_failure":"restart","server":"policy","template":"calculator","tree_hash":"tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt"}],"evaluator":{"item_seed":0,"item_set_hash":"items","items":2,"rounds":["initial","final"],"source_hash":"scorer","task":"calculator"},"external_models":[],"factors":{"train_batch_size":16},"fixed":{},"hypothesis":"","limits":{"first_step_deadline_s":180.0,"max_attempts":2,"max_client_restarts":3,"max_server_restarts":3,"max_time_s":900.0,"stall_deadline_s":180.0},"metric":{"direction":"maximize","name":"held_out_reward","protocol":""},"name":"b16","notes":"","predicted_outcome":"","purpose":"see whether it trains","resources":{"gpus":0,"slots":1},"schema_version":1,"secret_names":[],"seeds":[1],"servers":[{"gpus":0,"model_fingerprint":"","name":"policy","train":{"algorithm":{"clip_high":0.28,"clip_low":0.2,"epochs":1,"loss_aggregation":"token_mean","minibatches":1,"name":"grpo"},"batch":{"drain_deadline_s":30.0,"group_rule":"wait","max_groups_factor":8,"oversample":1.0,"policy":"C2","repeat":4,"tasks":8},"checkpoint":{"every_steps":10,"keep":2},"engine":"torch","episode":{"idle_deadline_s":120.0,"max_calls":256,"total_deadline_s":1800.0},"eval_gate":{"at_steps":[],"deadline_s":600.0},"match":"token","model":{"max_model_len":null,"path":"builtin:tiny-calc","tool_parser":null},"optimizer":{"beta1":0.9,"beta2":0.95,"grad_clip":1.0,"lr":0.0001,"weight_decay":0.0},"run_name":"run","sampling":{"default_temperature":1.0,"max_response_tokens":256},"seed":0,"stop_at_step":3}}]}','cb8690467cc923ad9cf3f0e57b2aced4a215a58909ab790a491293db161d35e3','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1000.0);
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
INSERT INTO "blueprints" VALUES('bp-00000z8p0rk5w','old-k43074pz','old-k43074pz-s1',0,'b16',1,'{"clients":[{"arguments":{},"entry":"client.py","name":"client","on_failure":"restart","server":"policy","template":"calculator","tree_hash":"tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt"}],"evaluator":{"item_seed":0,"item_set_hash":"items","items":2,"rounds":["initial","final"],"source_hash":"scorer","task":"calculator"},"external_models":[],"factors":{"train_batch_size":16},"fixed":{},"hypothesis":"","limits":{"first_step_deadline_s":180.0,"max_attempts":2,"max_client_restarts":3,"max_server_restarts":3,"max_time_s":900.0,"stall_deadline_s":180.0},"metric":{"direction":"maximize","name":"held_out_reward","protocol":""},"name":"b16","notes":"","predicted_outcome":"","purpose":"see whether it trains","resources":{"gpus":0,"slots":1},"schema_version":1,"secret_names":[],"seeds":[1],"servers":[{"gpus":0,"model_fingerprint":"","name":"policy","train":{"algorithm":{"clip_high":0.28,"clip_low":0.2,"epochs":1,"loss_aggregation":"token_mean","minibatches":1,"name":"grpo"},"batch":{"drain_deadline_s":30.0,"group_rule":"wait","max_groups_factor":8,"oversample":1.0,"policy":"C2","repeat":4,"tasks":8},"checkpoint":{"every_steps":10,"keep":2},"engine":"torch","episode":{"idle_deadline_s":120.0,"max_calls":256,"total_deadline_s":1800.0},"eval_gate":{"at_steps":[],"deadline_s":600.0},"match":"token","model":{"max_model_len":null,"path":"builtin:tiny-calc","tool_parser":null},"optimizer":{"beta1":0.9,"beta2":0.95,"grad_clip":1.0,"lr":0.0001,"weight_decay":0.0},"run_name":"run","sampling":{"default_temperature":1.0,"max_response_tokens":256},"seed":0,"stop_at_step":3}}]}','cb8690467cc923ad9cf3f0e57b2aced4a215a58909ab790a491293db161d35e3','0dd40d175fe27d9e6470ec54b87061d7f4bb0960a5fea2a34ade90fa3693f023','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1000.0);
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
INSERT INTO "campaigns" VALUES('old-k43074pz','old','running','# old goal','/goals','{"capacity":2}','stage','sweep',2,1000.0,1000.0,NULL,NULL,NULL);
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;
INSERT INTO "counters" VALUES('queue',1);
INSERT INTO "counters" VALUES('fencing',1);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id TEXT NOT NULL REFERENCES campaigns(id),
    stage_id TEXT REFERENCES stages(id),
    what TEXT NOT NULL,
    why TEXT NOT NULL,
    evidence TEXT NOT NULL,
    at REAL NOT NULL
) STRICT
;
INSERT INTO "decisions" VALUES(1,'old-k43074pz',NULL,'conclude','done','{"n":1}',1000.0);
CREATE TABLE eval_rounds (
    attempt_id TEXT NOT NULL REFERENCES attempts(id),
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (attempt_id, name)
) STRICT;
INSERT INTO "eval_rounds" VALUES('at-00000z8dkphs1','initial','{"evaluator_hash":"scorer","fencing_token":1,"fingerprint":"ffffffffffffffff","item_set_hash":"items","items":[{"calls":2,"item_id":"i0","policy_version":0,"reason":"","reward":0.5,"truncated_calls":0},{"calls":2,"item_id":"i1","policy_version":0,"reason":"","reward":0.5,"truncated_calls":0}],"name":"initial","planned":2,"policy_version":0,"step":0}',1000.0);
INSERT INTO "eval_rounds" VALUES('at-00000z8dkphs1','final','{"evaluator_hash":"scorer","fencing_token":1,"fingerprint":"ffffffffffffffff","item_set_hash":"items","items":[{"calls":2,"item_id":"i0","policy_version":3,"reason":"","reward":0.5,"truncated_calls":0},{"calls":2,"item_id":"i1","policy_version":3,"reason":"","reward":0.5,"truncated_calls":0}],"name":"final","planned":2,"policy_version":3,"step":3}',1000.0);
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
INSERT INTO "events" VALUES(1,'old-k43074pz',NULL,NULL,1000.0,'store','campaign_created','old-k43074pz','{"name":"old"}');
INSERT INTO "events" VALUES(2,'old-k43074pz',NULL,NULL,1000.0,'store','campaign_running','old-k43074pz','{"before":"planning","failure":null}');
INSERT INTO "events" VALUES(3,'old-k43074pz',NULL,NULL,1000.0,'store','stage_planned','old-k43074pz-s1','{"blueprints":1,"kind":"coarse","plan_hash":"e4a80312714050c2416f413e1c4293980439e0cc5b7897e4a73329d8bbae3026"}');
INSERT INTO "events" VALUES(4,'old-k43074pz',NULL,NULL,1000.0,'ada','blueprint_approved','b16','{"content_hash":"cb8690467cc923ad9cf3f0e57b2aced4a215a58909ab790a491293db161d35e3","note":""}');
INSERT INTO "events" VALUES(5,'old-k43074pz','at-00000z8dkphs1',NULL,1000.0,'store','attempt_queued','at-00000z8dkphs1','{"ordinal":1,"run":"run-00000z881knfn"}');
INSERT INTO "events" VALUES(6,'old-k43074pz','at-00000z8dkphs1',NULL,1000.0,'store','attempt_leased','at-00000z8dkphs1','{"fencing":1,"worker":"w1"}');
INSERT INTO "events" VALUES(7,'old-k43074pz','at-00000z8dkphs1',NULL,1000.0,'store','attempt_succeeded','at-00000z8dkphs1','{"failure":null,"reason":"","step":3}');
INSERT INTO "events" VALUES(8,'old-k43074pz',NULL,NULL,1000.0,'leader','decided','old-k43074pz','{"what":"conclude","why":"done"}');
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
INSERT INTO "reviews" VALUES(1,'bp-00000z8p0rk5w','cb8690467cc923ad9cf3f0e57b2aced4a215a58909ab790a491293db161d35e3','approved','ada','',1000.0,NULL);
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
INSERT INTO "runs" VALUES('run-00000z881knfn','old-k43074pz','bp-00000z8p0rk5w',0,1,'succeeded','at-00000z8dkphs1',NULL,'');
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
INSERT INTO "stages" VALUES('old-k43074pz-s1','old-k43074pz',1,'coarse','planned','{"question":"which?"}','e4a80312714050c2416f413e1c4293980439e0cc5b7897e4a73329d8bbae3026',NULL,1000.0,NULL);
CREATE TABLE steps (
    attempt_id TEXT NOT NULL REFERENCES attempts(id),
    step INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (attempt_id, step)
) STRICT;
INSERT INTO "steps" VALUES('at-00000z8dkphs1',1,'{"step":1}');
INSERT INTO "steps" VALUES('at-00000z8dkphs1',2,'{"step":2}');
INSERT INTO "steps" VALUES('at-00000z8dkphs1',3,'{"step":3}');
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    inventory TEXT NOT NULL,
    registered_at REAL NOT NULL,
    seen_at REAL NOT NULL
) STRICT;
CREATE INDEX reviews_of_blueprint ON reviews (blueprint_id, id);
CREATE INDEX runs_of_campaign ON runs (campaign_id, position);
CREATE INDEX attempts_of_campaign ON attempts (campaign_id, state);
CREATE UNIQUE INDEX one_live_attempt_a_run ON attempts (run_id)
    WHERE state NOT IN ('succeeded', 'failed', 'cancelled', 'lost');
CREATE UNIQUE INDEX a_fencing_token_is_used_once ON attempts (fencing_token) WHERE fencing_token > 0;
CREATE INDEX events_of_campaign ON events (campaign_id, seq);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('reviews',1);
INSERT INTO "sqlite_sequence" VALUES('events',8);
INSERT INTO "sqlite_sequence" VALUES('decisions',1);
COMMIT;
