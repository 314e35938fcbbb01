"""Spack's recipe.

Tried: Python runs it with a stand-in for Spack's modules. Not tried: Spack itself.

For Spack 1.0 or newer. Copy this file to packages/py_sirtaki/package.py of a repository of yours,
change to the folder where `make wheels` has put sirtaki-1.0.0rc1.tar.gz, and run:
spack install --no-checksum py-sirtaki +torch
"""

from pathlib import Path

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PySirtaki(PythonPackage):
    """Data-parallel training with Horovod's API on PyTorch, TensorFlow, Keras, JAX and NumPy."""

    homepage = "https://example.org/sirtaki"  # where your source is
    url = f"file://{Path.cwd()}/sirtaki-1.0.0rc1.tar.gz"
    manual_download = True

    license("Apache-2.0")

    version("1.0.0rc1")

    variant("torch", default=False, description="With PyTorch")
    variant("mpi", default=False, description="With the collectives of an MPI")

    depends_on("cxx", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-scikit-build-core@0.11:", type="build")
    depends_on("py-nanobind@2.7:", type="build")
    depends_on("cmake@3.26:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-numpy@1.23:", type=("build", "run"))
    depends_on("py-cloudpickle@2.2:", type=("build", "run"))
    depends_on("py-pyyaml@6:", type=("build", "run"))
    depends_on("py-torch@2.4:", type=("build", "run"), when="+torch")
    depends_on("py-mpi4py@4:", type=("build", "run"), when="+mpi")

    import_modules = ("sirtaki", "horovod")
