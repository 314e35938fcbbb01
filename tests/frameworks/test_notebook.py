"""A notebook's kernel as a rank, beside processes that a cell starts."""

from __future__ import annotations

import pytest

from tests import needs

pytestmark = pytest.mark.job

nbclient = needs.package("nbclient")
needs.package("ipykernel")
nbformat = needs.package("nbformat")

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


def test_cells_of_a_notebook_train_with_processes_that_they_start() -> None:
    cells = [START, SUM.format(number=0), SUM.format(number=1), END]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    found = [cell.outputs[-1].data["text/plain"] for cell in notebook.cells]
    assert found == ["(0, 3)", "[3.0, 3.0, 3.0]", "[3.0, 3.0, 3.0]", "([0, 0], None)"]
