"""Notebooks: a kernel as a rank, functions and cells that run on many processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.pages import DOCS, ROOT, blocks_of

pytestmark = pytest.mark.job

nbclient = needs.package("nbclient")
needs.package("ipykernel")
nbformat = needs.package("nbformat")

EXAMPLES = ROOT / "examples"
START = """
import pickle, subprocess, sys
import numpy as np
import sirtaki as hvd

RANK = '''
import pickle, sys
import numpy as np
import sirtaki as hvd
hvd.init(placement=pickle.loads(sys.stdin.buffer.read()))
for number in range(2):
    hvd.allreduce(np.full(3, float(hvd.rank())), name=f"cell{number}", op=hvd.Sum)
'''

with hvd.placements(3) as given:
    others = []
    for placement in given[1:]:
        process = subprocess.Popen([sys.executable, "-c", RANK], stdin=subprocess.PIPE)
        process.stdin.write(pickle.dumps(placement))
        process.stdin.close()
        others.append(process)
    hvd.init(placement=given[0])
hvd.rank(), hvd.size()
"""
SUM = "hvd.allreduce(np.zeros(3), name='cell{number}', op=hvd.Sum).tolist()"
END = "[process.wait() for process in others], hvd.shutdown()"


DEFINE = """
import numpy as np
import sirtaki as hvd
%load_ext sirtaki.notebook
factor = 10

def train(steps):
    hvd.init()
    print("working", flush=True)
    return float(hvd.allreduce(np.full(1, hvd.rank() * factor + steps), op=hvd.Sum)[0])

def fails():
    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("planted")  # the line that is to be shown
    hvd.barrier()
"""
MAGIC = """%%sirtaki -np 2
hvd.init()
print("rank", hvd.rank())
train(1)
"""
SLEEPS = """
import pathlib, sys, time
def sleeps(folder):
    import os
    pathlib.Path(folder, str(os.getpid())).touch()
    time.sleep(600)
hvd.run(sleeps, ({folder!r},), num_proc=2)
"""


@pytest.fixture(scope="module")
def kernel() -> Any:
    """A client of a kernel that knows what `DEFINE` defines."""
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=60, kernel_name="python3")
    with client.setup_kernel():
        run(client, DEFINE)
        yield client


def run(client: Any, code: str) -> Any:
    """Run a cell; return it, with its outputs."""
    cell = nbformat.v4.new_code_cell(code)
    client.nb.cells.append(cell)
    return client.execute_cell(cell, len(client.nb.cells) - 1)


def printed(cell: Any) -> str:
    """What a cell has shown as text."""
    return "".join(output.get("text", "") for output in cell.outputs)


def test_a_function_of_the_notebook_runs_on_ranks_whose_output_the_cell_shows(kernel: Any) -> None:
    cell = run(kernel, "hvd.run(train, (3,), num_proc=2)")
    assert cell.outputs[-1].data["text/plain"] == "[16.0, 16.0]"
    assert "[0]<stdout>:working" in printed(cell)
    assert "[1]<stdout>:working" in printed(cell)


def test_an_error_of_a_rank_shows_the_line_of_the_notebook(kernel: Any) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        run(kernel, "hvd.run(fails, num_proc=2)")
    assert "rank 1" in str(caught.value)
    assert 'raise ValueError("planted")  # the line that is to be shown' in str(caught.value)


def test_a_cell_with_our_magic_runs_on_ranks(kernel: Any) -> None:
    cell = run(kernel, MAGIC)
    assert cell.outputs[-1].data["text/plain"] == "[12.0, 12.0]"
    assert "[1]<stdout>:rank 1" in printed(cell)


def test_our_magic_explains_what_it_does_not_understand(kernel: Any) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="invalid int value: 'two'"):
        run(kernel, "%%sirtaki -np two\n1")


def test_cells_of_a_notebook_train_with_processes_that_they_start() -> None:
    cells = [START, SUM.format(number=0), SUM.format(number=1), END]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    found = [cell.outputs[-1].data["text/plain"] for cell in notebook.cells]
    assert found == ["(0, 3)", "[3.0, 3.0, 3.0]", "[3.0, 3.0, 3.0]", "([0, 0], None)"]


@pytest.mark.nightly
def test_the_notebook_among_the_examples_trains() -> None:
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", nbformat.NO_CONVERT)
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "[1]<stdout>:step 100: loss" in printed(cells[2])
    values = [cell.outputs[-1].data["text/plain"] for cell in cells[2:]]
    assert values[0] == "2"
    assert float(values[1].strip("'").removeprefix("accuracy ")) > 0.8
    assert values[2] == "[3.0, 3.0]"


@needs.installed("keras", "torch")
@pytest.mark.nightly
def test_the_notebook_of_keras_among_the_examples_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    notebook = nbformat.read(EXAMPLES / "notebook_keras.ipynb", nbformat.NO_CONVERT)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "[0]<stdout>:epoch 4: loss" in printed(cells[2])
    values = [cell.outputs[-1].data["text/plain"] for cell in cells[2:]]
    assert values[0] == "2"
    assert float(values[1].strip("'").removeprefix("accuracy ")) > 0.8


@pytest.mark.slow
def test_the_cells_of_the_page_on_notebooks_have_the_values_that_it_tells() -> None:
    page = DOCS / "howto" / "notebooks.md"
    cells = [nbformat.v4.new_code_cell(block.text) for block in blocks_of(page)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    values = [cells[number].outputs[-1].data["text/plain"] for number in (0, 2)]
    assert values == ["[0.05, 0.05]", "[[0.5], [0.5]]"]
    assert all(f"`{value}`" in page.read_text() for value in values)


def test_an_interrupt_of_a_cell_ends_its_ranks(kernel: Any, tmp_path: Path) -> None:
    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.05)
        os.kill(kernel.km.provisioner.pid, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="KeyboardInterrupt"):
        run(kernel, SLEEPS.format(folder=str(tmp_path)))
    thread.join()
    left = [path.name for path in tmp_path.iterdir() if Path("/proc", path.name).exists()]
    assert left == []
