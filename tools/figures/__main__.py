"""Draw the chart that the README shows: `python -m tools.figures`."""

from __future__ import annotations

from pathlib import Path

from tools.figures.charts import CHARTS
from tools.figures.plot import draw
from tools.figures.svg import file_style

FILE = Path(__file__).resolve().parents[2] / "docs" / "_static" / "train-step.svg"
ALT = (
    "Time of a training step on two processes, relative to one process alone: Sirtaki against "
    "PyTorch's DDP over Gloo, for three models."
)


def chart_of_the_readme() -> str:
    return draw(CHARTS["train-step"](), ALT, file_style()) + "\n"


if __name__ == "__main__":
    FILE.write_text(chart_of_the_readme())
    print(FILE)
