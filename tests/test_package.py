"""The package as a whole."""

import subprocess
import sys
from pathlib import Path

import onebit

SOURCE = Path(onebit.__file__).parent


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, onebit; "
        "heavy = {'numba', 'sklearn', 'pandas', 'scipy', 'matplotlib', 'numpy'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_can_be_had():
    for name in onebit.__all__:
        assert getattr(onebit, name) is not None
    assert set(onebit.__all__) <= set(dir(onebit))


def test_nothing_in_the_package_reads_pickles():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text
        assert "allow_pickle=True" not in text
        assert "joblib.load" not in text
