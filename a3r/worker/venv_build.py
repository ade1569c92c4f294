"""Makes a virtual environment, once for all attempts that want the same: ``python -m a3r.worker.venv_build RECIPE.json``.

A supervised process of the first attempt that needs it; others wait for its lock. ``ready.json`` in the folder says that it is
whole and what is in it; without it a folder is what a killed build left, and is made anew.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import swarm
from a3r.core.hashing import content_hash
from a3r.worker.supervisor import write_json

ASK = (
    "import importlib.metadata as m, json, sysconfig, sys\n"
    "print(json.dumps({'site': sysconfig.get_path('purelib'), 'path': [p for p in sys.path if p],"
    " 'packages': sorted({f\"{d.metadata['Name']}=={d.version}\" for d in m.distributions() if d.metadata['Name']})}))"
)
EXTRAS = {"client": (), "server": ("server", "train")}


def build(recipe: dict[str, Any]) -> None:
    """Make the venv of a recipe (``Environments.recipe``) unless somebody has. Safe to repeat.

    Raises:
        Unmade: venv or pip failed; its output is in the log.
        subprocess.CalledProcessError: the new interpreter does not answer.
    """
    folder = Path(recipe["folder"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "ready.json").exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        run([recipe["python"], "-m", "venv", "--without-pip", str(folder)])
        python = folder / "bin" / "python"
        site = Path(ask(python)["site"])
        wanted = list(recipe["requirements"])
        if recipe["overlay"]:
            # What the worker has is there; what is installed here lies over it.
            lines = [entry for entry in ask(Path(sys.executable))["path"] if Path(entry).is_dir()]
            (site / "a3r-worker.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        else:
            wanted += base_requirements(EXTRAS[recipe["need"]])
        if wanted:
            pip = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--python")
            run([sys.executable, *pip, str(python), "install", *wanted])
        link_swarm(site)
        packages = ask(python)["packages"]
        told = {
            "packages": len(packages),
            "packages_hash": content_hash(packages)[:16],
            "requirements": list(recipe["requirements"]),
        }
        (folder / "packages.txt").write_text("\n".join(packages) + "\n", encoding="utf-8")
        write_json(folder / "ready.json", told)


def link_swarm(site: Path) -> None:
    """Give the venv the worker's own swarm, unless a requirement brought one: both ends then speak the same protocol."""
    target = site / "swarm"
    if not target.exists():
        target.symlink_to(Path(swarm.__path__[0]).resolve(), target_is_directory=True)


def base_requirements(extras: tuple[str, ...]) -> list[str]:
    """What swarm itself needs, as this installation says; empty when it does not say."""
    try:
        lines = requires("a3r") or []
    except PackageNotFoundError:
        return []
    found: list[str] = []
    for line in lines:
        name, _, marker = line.partition(";")
        wanted = [f"extra == '{e}'" in marker.replace('"', "'") for e in extras]
        if "extra ==" not in marker or any(wanted):
            found.append(name.strip())
    return found


def ask(python: Path) -> dict[str, Any]:
    """Where an interpreter's packages lie, and which there are."""
    done = subprocess.run(
        [str(python), "-c", ASK], stdout=subprocess.PIPE, text=True, check=True, cwd="/"
    )
    return json.loads(done.stdout)


class Unmade(Exception):
    """A step failed; the text is what it said of it."""


def run(argv: list[str]) -> None:
    """Run a step; its output goes to the log.

    Raises:
        Unmade: it failed, with its last error, else its last words.
    """
    sys.stderr.write("+ " + " ".join(argv) + "\n")
    sys.stderr.flush()
    errors, last = list[str](), ""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as step:
        for line in step.stdout or ():
            sys.stderr.write(line)
            sys.stderr.flush()
            last = line.strip() or last
            if last.lower().startswith("error:"):
                errors.append(last)
    if step.returncode:
        raise Unmade(f"{errors[-1] if errors else last} (exit code {step.returncode})")


def main() -> None:
    """Read the recipe named in argv and build; exit code 1 = it could not be made."""
    recipe = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        build(recipe)
    except (Unmade, subprocess.CalledProcessError, OSError) as error:
        sys.stderr.write(f"the environment cannot be made: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
