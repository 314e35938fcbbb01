"""Run the frameworks' tests at two ranks on their oldest and newest versions.

python tools/try_frameworks.py [NAME …]        environments are kept in build/frameworks
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "frameworks"
NEEDED = ("cmake", "ninja", "nanobind", "scikit-build-core", "cloudpickle", "PyYAML")
TESTING = ("pytest", "pytest-timeout", "hypothesis", "scikit-learn")

# Name, what is installed, which tests are run. The interpreter is the one that runs this.
ENVIRONMENTS = {
    "tensorflow-2.16": (("tensorflow-cpu==2.16.2", "tf_keras==2.16.0"), ("tensorflow",)),
    "tensorflow-newest": (("tensorflow-cpu", "keras"), ("tensorflow", "keras")),
    "jax-0.6": (("jax==0.6.2", "jaxlib==0.6.2", "optax"), ("jax",)),
    "jax-newest": (("jax", "optax"), ("jax",)),
}


def main(names: list[str]) -> int:
    unknown = set(names) - set(ENVIRONMENTS)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(ENVIRONMENTS)}")
        return 2
    failed = 0
    for name in names or ENVIRONMENTS:
        requirements, suites = ENVIRONMENTS[name]
        python = environment(name, requirements)
        for suite in suites:
            code = run(python, suite)
            failed += code != 0
            print(
                f"{name:20} {suite:12} {'passed' if code == 0 else f'failed ({code})'}", flush=True
            )
    return 1 if failed else 0


def environment(name: str, requirements: tuple[str, ...]) -> Path:
    """Return the Python of an environment that has the requirements and the package."""
    python = KEPT / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(KEPT / name)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, *requirements, *NEEDED, *TESTING], check=True)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    build = ("--no-deps", "--no-build-isolation", "--force-reinstall", str(ROOT))
    subprocess.run([*install, *build], check=True, env={**os.environ, "PATH": path})
    return python


def run(python: Path, suite: str) -> int:
    tests = f"tests/frameworks/{suite}/ranks"
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    launcher = [str(python.with_name("horovodrun")), "-np", "2"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run([*launcher, *command], cwd=ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
