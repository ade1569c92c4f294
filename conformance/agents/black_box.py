"""A program that knows nothing of swarm: it plays with what its environment names and tells a reward in its last line."""

import json
import runpy
import sys
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("raw_http.py")))
print(json.dumps({"reward": float(sys.argv[1])}))
