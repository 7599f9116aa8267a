"""The house: who may import from whom, how deep classes go, and that what is documented is there."""

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import onebit

HOUSE = Path(onebit.__file__).parent
DOCS = HOUSE.parent.parent / "docs"
# Each may import from itself and from those before it.
ROOMS = ["data", "model", "engine", "certificates", "completers", "report", "study", "serve", "cli"]
LONGEST = 420


def module_of(path):
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports():
    """Return, of every module, the modules of this package that it imports, at any time."""
    files = {module_of(path): path for path in HOUSE.rglob("*.py")}
    found = {}
    for name, path in files.items():
        targets = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "onebit":
                base = (node.module or "")[len("onebit.") :]
                for alias in node.names:
                    inner = f"{base}.{alias.name}".strip(".")
                    targets.add(inner if inner in files else base)
            elif isinstance(node, ast.Import):
                targets |= {a.name[len("onebit.") :] for a in node.names if a.name.startswith("onebit.")}
        found[name] = {target for target in targets if target in files and target not in ("", name)}
    return found


def test_the_top_of_the_house_has_nine_rooms_and_little_else():
    names = {p.name for p in HOUSE.iterdir() if p.name != "__pycache__"}
    assert names == {*ROOMS, "__init__.py", "__main__.py", "py.typed"}


def test_no_room_imports_from_a_later_one():
    order = {room: place for place, room in enumerate(ROOMS)}
    against = [
        (name, target)
        for name, targets in imports().items()
        for target in targets
        if name.split(".")[0] in order and order.get(target.split(".")[0], -1) > order[name.split(".")[0]]
    ]
    assert against == []


def test_no_module_imports_itself_through_others():
    graph = {name: targets for name, targets in imports().items() if name}
    done, path = set(), []

    def walk(name):
        if name in path:
            pytest.fail(" -> ".join([*path[path.index(name) :], name]))
        if name in done:
            return
        path.append(name)
        for target in sorted(graph.get(name, ())):
            walk(target)
        done.add(path.pop())

    for name in sorted(graph):
        walk(name)


def test_no_file_is_longer_than_one_idea():
    long = {
        str(path.relative_to(HOUSE)): lines
        for path in HOUSE.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert long == {}


@pytest.mark.parametrize("name", [name for name in onebit.__all__ if name.endswith("Completer")])
def test_completers_are_two_deep_above_scikit_learn(name):
    own = [
        kind
        for kind in getattr(onebit, name).__mro__
        if kind.__module__.startswith("onebit.") and issubclass(kind, BaseEstimator)
    ]
    assert len(own) == 2


def test_completers_reach_private_members_of_their_own_model_alone():
    """Not of what else they are handed; the parts of a completer call the whole ``model``."""
    for path in (HOUSE / "completers").glob("*.py"):
        if path.name in ("base.py", "archive.py", "loading.py", "filling.py", "certified.py"):
            continue  # the base, and what writes, reads and fills it
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"\b(?!self\b|cls\b|super\b|model\b|completer\b)\w+\._[a-z]\w+", text)
        assert [name for name in found if not name.startswith("machine.")] == [], path.name


PUBLIC_MODULES = [
    "bounds", "certificates", "datasets", "directions", "evaluation", "plots", "record", "school",
    "simulate", "study", "tables", "storage", "gpu.device", "report",
]  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_are_found_by_their_public_names(name):
    module = importlib.import_module(f"onebit.{name}")
    assert module.__doc__
    assert importlib.import_module(module.__name__) is module
    assert module.__spec__.name == module.__name__


def test_public_names_still_work():
    from onebit.gpu.device import DeviceError
    from onebit.storage import FileError

    from onebit.certificates import Certificate, at_most
    from onebit.report import write_report

    assert all((Certificate, at_most, DeviceError, write_report, FileError))


def looked_up(name):
    """Return what a dotted name below the package means."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["onebit", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def test_every_name_that_the_paper_is_mapped_to_exists():
    text = (DOCS / "paper-to-code.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")]
    names = {
        name
        for row in rows
        for name in re.findall(r"`((?:%s)\.[\w.]+)`" % "|".join(ROOMS), row)  # noqa: UP031
    }
    assert len(names) > 20
    for name in names:
        assert looked_up(name) is not None


def test_every_name_of_the_reference_exists():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    names = re.findall(r"^::: onebit\.(\S+)$", text, flags=re.M)
    assert len(names) > 20
    for name in names:
        assert looked_up(name) is not None


def public_callables():
    """Return the public functions and classes of the package with their methods."""
    found = {}
    for name in imports():
        if name.split(".")[0] not in ROOMS[:6] or "gpu." in name:
            continue
        module = importlib.import_module(f"onebit.{name}" if name else "onebit")
        for label, thing in vars(module).items():
            if label.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isclass(thing) and issubclass(thing, BaseEstimator):
                found[f"{name}.{label}"] = (thing.__init__, thing.__doc__)
                for inner, method in vars(thing).items():
                    if inspect.isfunction(method) and not inner.startswith("_"):
                        found[f"{name}.{label}.{inner}"] = (method, method.__doc__)
            elif inspect.isfunction(thing):
                found[f"{name}.{label}"] = (thing, thing.__doc__)
    return found


def documented(doc):
    """Return the parameters of a numpydoc docstring, or None where it has no such section."""
    match = re.search(r"\n\s*Parameters\n\s*-+\n(.*?)(\n\s*\n\s*\w[\w ]*\n\s*-{3,}|\Z)", doc or "", re.S)
    if match is None:
        return None
    lines = match.group(1).splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    heads = " ".join(
        line.split(":")[0].strip()
        for line in lines
        if line.strip() and len(line) - len(line.lstrip()) == indent
    )
    return {name.strip("* ") for name in re.split(r"[,\s]+", heads) if name.strip("* ")}


@pytest.mark.parametrize("name", sorted(public_callables()))
def test_documented_parameters_are_those_of_the_signature(name):
    thing, doc = public_callables()[name]
    said = documented(doc)
    if said is None:
        return
    real = set(inspect.signature(inspect.unwrap(thing)).parameters) - {"self", "cls"}
    assert said == real


def test_compiled_functions_are_kept_by_the_house_itself():
    """Numba alone ends a fit where the disk is full; parts of kernels are ``within_kernels``."""
    alone = re.compile(r"cache=True|@numba\.njit\b(?!\(inline)")
    assert [path.name for path in HOUSE.rglob("*.py") if alone.search(path.read_text())] == []
