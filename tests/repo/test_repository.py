"""The repository's own promises: its files, its commands, its documents."""

import itertools
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
TARGETS = {"setup", "demo", "test", "test-long", "test-all", "lint", "trust", "types"}
TARGETS |= {
    "bench",
    "docs",
    "clean",
    "constraints",
    "help",
    "chaos",
    "chaos-swarm",
    "chaos-campaign",
    "soak",
    "conformance",
    "setup-verl",
    "test-verl",
    "gpu-check",
}
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


def tracked_files() -> list[Path]:
    """Every file that is or would be committed."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    paths = [ROOT / name.decode() for name in listing.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def pinned_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def requirements_of_all_extras() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = itertools.chain.from_iterable(project["optional-dependencies"].values())
    lines = [*project["dependencies"], *extras]
    return [Requirement(line) for line in lines if not line.startswith("a3r[")]


def test_agents_file_is_short_enough_to_be_read() -> None:
    lines = (ROOT / "AGENTS.md").read_text("utf-8").splitlines()
    assert 40 <= len(lines) <= 100


def test_claude_file_is_one_line_that_points_at_the_agents_file() -> None:
    lines = (ROOT / "CLAUDE.md").read_text("utf-8").splitlines()
    assert len(lines) == 1
    assert "AGENTS.md" in lines[0]


def test_license_is_the_apache_license() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_tracked_file_names_a_place_on_somebodys_machine() -> None:
    # Written with [/], so that this file does not match itself.
    places = "[/]work[/](?:main|shared)|[/]tmp[/]w[/]|[/]root[/]|[/]opt[/](?:wheels|pypi)"
    homes = r"[/]home[/][a-z]\w*[/]|[/]Users[/][A-Za-z]\w*[/]"
    pattern = re.compile(f"{places}|{homes}".encode())
    found = {
        str(path.relative_to(ROOT)): match.group().decode()
        for path in tracked_files()
        if (match := pattern.search(path.read_bytes()))
    }
    assert found == {}


def test_no_source_file_is_over_500_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for package in ("swarm", "a3r")
        for path in (ROOT / package).rglob("*.py")
    }
    assert lengths
    assert {name: count for name, count in lengths.items() if count > 500} == {}


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_without_a_target_lists_every_target() -> None:
    listing = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    listed = [line.split()[1] for line in listing.splitlines() if line.startswith("make ")]
    assert sorted(listed) == sorted(TARGETS)


@pytest.mark.parametrize("name", ["README.md", "AGENTS.md", "docs/index.md"])
def test_documents_quote_only_make_targets_that_exist(name: str) -> None:
    quoted = re.findall(r"(?:^|`)make ([a-z][a-z-]*)", (ROOT / name).read_text("utf-8"), re.M)
    assert quoted
    assert set(quoted) <= TARGETS


@pytest.mark.parametrize(
    "name",
    ["README.md", "AGENTS.md", *[str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")]],
)
def test_links_between_documents_lead_to_files(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text("utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_scripts_parse() -> None:
    scripts = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci/run"]
    assert len(scripts) >= 5
    for script in scripts:
        done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script


def test_setup_refuses_an_unfit_interpreter_and_says_which(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": "false", "VENV": str(tmp_path / "venv")}
    done = subprocess.run(
        ["bash", ROOT / "scripts/setup.sh"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "PYTHON=false is not a Python >= 3.11" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_torch_is_pinned_without_a_build_suffix() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", pinned_versions()["torch"])


def test_every_requirement_is_pinned_within_its_range() -> None:
    pins = pinned_versions()
    wrong = {
        requirement.name: pins.get(canonicalize_name(requirement.name))
        for requirement in requirements_of_all_extras()
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"))
    }
    assert wrong == {}


def test_no_cuda_package_is_pinned() -> None:
    # nvidia-ml-py is pure Python and asks the driver; the others are parts of a CUDA build.
    cuda = re.compile(r"nvidia-(?!ml-py$)|cuda-|triton")
    assert [name for name in pinned_versions() if cuda.match(name)] == []


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem[:3])
def test_a_decision_has_a_title_with_its_number_and_is_listed(path: Path) -> None:
    title = path.read_text("utf-8").splitlines()[0]
    assert re.fullmatch(rf"# {path.stem[:3]} \S.+", title)
    assert f"({path.name})" in (ROOT / "docs/decisions/README.md").read_text("utf-8")


def test_the_sites_navigation_has_every_document_once() -> None:
    site = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text("utf-8"))
    listed = re.findall(r"[\w/.-]+\.md", str(site["nav"]))
    existing = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert sorted(listed) == sorted(existing)
