import ast
import functools
import itertools
from pathlib import Path

from back.rings import RINGS as BACKS_RINGS
from lead.rings.table import RINGS as LEADS_RINGS
from shared.rings import RINGS as SHARED_RINGS

ROOT = Path(__file__).parent.parent
PRODUCT = ("lead", "back", "chat", "shared", "fleet", "lab")
FOR_DEVELOPERS = ("bench", "lab.parts", "lab.campaign")
"""Packages that may import anything, and that nothing imports: no wheel has them."""
RINGS = {
    "several models": ("lead.router",),
    "pairing": ("lead.pairing", "shared.pairing"),
    "other APIs": ("lead.apis",),
    "texts on disk": ("lead.disk_cache",),
    "translation": ("lead.translation", "back.translation", "shared.translation"),
    "heads": ("lead.heads", "shared.heads"),
    "exact": ("lead.exact", "shared.exact"),
    "rpc": ("lead.rpc", "shared.rpc"),
    "convert": ("lead.convert", "shared.convert"),
    "service": ("lead.os_service", "back.os_service", "shared.os_service"),
    "generate": ("lead.generate",),
    "suffix": ("lead.suffix",),
    "tools": ("lead.tools",),
    "embeddings": ("lead.embeddings",),
    "infill": ("lead.infill",),
    "images": ("lead.images",),
    "lora": ("shared.lora",),
    "metrics": ("lead.metrics",),
    "placement": ("shared.placement",),
    "attention": ("lead.attention",),
    "check": ("lead.diagnostics",),
    "plan, bench, doctor": ("lab.planning", "lab.measuring", "lab.simulation", "lab.doctor"),
    "fleet": ("fleet",),
}
"""The packages of each ring."""


ROOTS = {
    "lead.cli": {"check", "plan, bench, doctor"},
    "lead.settings.lead_settings": {"rpc"},
    "shared.model_files.builtin": {"convert"},
    "shared.model_files.model_file": {"convert"},
    "shared.settings.model_source": {"convert"},
    "back.cli": {"plan, bench, doctor", "service"},
    "back.settings": {"pairing"},
    "chat.settings": {"pairing"},
}
"""Modules of the core that put programs together, and the rings that each may import.

Modules of the lead's server import no rings: rings plug in there (`lead.rings`). A ring that no module here
imports can be deleted.
"""
RINGS_OF_RINGS = {
    ("generate", "check"),
    *(("check", each) for each in ("heads", "rpc", "several models", "translation")),
    *(("plan, bench, doctor", each) for each in ("attention", "check", "translation")),
    *(("several models", each) for each in ("other APIs", "translation")),
}
"""(importing, imported) of rings: a ring that examines a lead or runs several has to know their parts."""
WITHOUT = tuple(ring for ring in RINGS if ring != "fleet")
"""Rings without which a lead starts and answers (tests/real/test_without_rings.py)."""


@functools.cache
def modules():
    """All source files by the names of their modules."""
    found = {}
    for path in (path for package in (*PRODUCT, "bench") for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imported(module):
    """The modules of the tree that a module imports anywhere in its source."""
    found = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                name if (name := f"{node.module}.{alias.name}") in modules() else node.module
                for alias in node.names
            }
    return {name for name in found if name in modules()}


def is_in(module, package):
    return module == package or module.startswith(f"{package}.")


def ring_of(module):
    """The ring of a module; None for the core."""
    return next(
        (ring for ring, packages in RINGS.items() if any(is_in(module, each) for each in packages)), None
    )


def is_for_developers(module):
    return any(is_in(module, package) for package in FOR_DEVELOPERS)


def edges():
    """(importing, imported) of each import of a module in another ring."""
    for module in modules():
        for other in imported(module):
            if ring_of(other) and ring_of(other) != ring_of(module) and not is_for_developers(module):
                yield module, other


def test_the_core_imports_a_ring_only_where_programs_are_put_together():
    found = {}
    for module, other in edges():
        if ring_of(module) is None:
            found.setdefault(module, set()).add(ring_of(other))
    assert found == ROOTS


def test_a_ring_imports_another_only_as_the_table_says():
    found = {(ring_of(module), ring_of(other)) for module, other in edges() if ring_of(module)}
    assert found == RINGS_OF_RINGS


def test_each_package_of_a_ring_says_what_it_adds():
    for package in itertools.chain.from_iterable(RINGS.values()):
        assert ast.get_docstring(ast.parse(modules()[package].read_text())), package


def test_the_lists_of_rings_have_only_packages_of_rings():
    assert [each for each in (*LEADS_RINGS, *BACKS_RINGS, *SHARED_RINGS) if ring_of(each) is None] == []


def packages_with(*seams):
    """The packages of rings that have a module of one of these names."""
    found = {module.rpartition(".")[0] for module in modules() if module.split(".")[-1] in seams}
    return {package for package in found if ring_of(package)}


def test_the_lists_have_all_rings_that_are_plugged_in():
    in_both = ("other_vocabulary",)
    in_leads = [
        *("before_load", "call_support", "companions", "image_reader", "in_engine", "inline_source"),
        *("kind", "model_routes", "opened", "routes", "side_routes", "target_loader"),
    ]
    assert packages_with(*in_both, *in_leads) == set(LEADS_RINGS)
    assert packages_with(*in_both, "vocabulary_download") == set(BACKS_RINGS)
    assert packages_with("adapters", "place_layers") == set(SHARED_RINGS)


def test_nobody_imports_what_is_for_developers_or_deploys():
    for module in modules():
        for other in imported(module):
            assert is_for_developers(module) or not is_for_developers(other), module
            assert is_in(module, "fleet") or not is_in(other, "fleet"), module


def package_of(module):
    """The package in a reader's map: the folder below the program's, or the program."""
    parts = module.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else parts[0]


def test_no_two_packages_import_each_other():
    found = {
        (package_of(module), package_of(other))
        for module in modules()
        if module not in ROOTS
        for other in imported(module)
        if package_of(module) != package_of(other) and is_in(module, "lead") and is_in(other, "lead")
    }
    assert {pair for pair in found if pair[::-1] in found and pair < pair[::-1]} == set()
