# Sourced: a campaign from goal to verified report. Needs $bin, the folder of the environment's programs.

# to_report GOAL UNFINISHED [SAYS]: UNFINISHED goes to stderr when the campaign does not end, SAYS before the report's place.
to_report() {
  local answer report status
  # With --json stdout carries exactly one document; it names the report when the campaign is done.
  answer=$("$bin/a3r" campaign start "$1" --review none --watch --json) || {
    status=$?
    printf '%s\n' "$answer"
    echo "$2" >&2
    exit "$status"
  }
  report=$(printf '%s' "$answer" | "$bin/python" -c 'import json, sys; print(json.load(sys.stdin)["report"])')
  "$bin/a3r" campaign verify "$report"
  echo "${3-}read $report"
}
