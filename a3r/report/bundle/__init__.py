"""A bundle: one file that holds a campaign's report and everything behind it, and verifies on another machine without a workspace.

::

    manifest.json            format, campaign, sha256 of every other file, logs that were cut
    report/                  the report's folder, as it was written
    blueprints/<name>.md     what was approved; the approvals are in report/records/reviews.json
    clients/<tree>.tar       the code of every client and revision, by its tree hash
    evaluators/<tree>.tar    sealed evaluators, by their tree hash
    transcripts.jsonl        every call of a language model: request and reply
    logs/<attempt>/<name>.log

Whatever looks like a secret, or is the value of one that the exporting process knows, is replaced in transcripts and logs.
"""

FORMAT = 1
"""Version of the layout; a newer one is refused."""
MANIFEST = "manifest.json"
REPORT = "report"
TRANSCRIPTS = "transcripts.jsonl"
