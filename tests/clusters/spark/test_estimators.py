"""The estimators on a real Spark: two ranks train, the model predicts, a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import needs

needs.package("pyspark")
pytestmark = pytest.mark.nightly

from horovod.spark.common.store import Store  # noqa: E402


@pytest.fixture
def spark(session_of: Callable[[str], Any]) -> Any:
    """A Spark with two slots in one process."""
    return session_of("local[2]")


@pytest.fixture
def line(spark: Any) -> Any:
    """Rows of y = 2 a - b + 1, with a vector of both, a weight, and every fourth held out."""
    from pyspark.ml.linalg import Vectors

    rng = np.random.default_rng(0)
    rows = [
        (Vectors.dense([a, b]), float(2 * a - b + 1), 1.0, number % 4 == 0)
        for number, (a, b) in enumerate(rng.uniform(-1, 1, (400, 2)).tolist())
    ]
    return spark.createDataFrame(rows, ["features", "y", "weight", "held"])


def near(rows: list[Any], column: str = "y__output") -> float:
    """The largest error of a prediction."""
    return max(abs(row.y - row[column]) for row in rows)


def linear(**more: Any) -> Any:
    import torch

    from horovod.spark.torch import TorchEstimator

    torch.manual_seed(1)
    model = torch.nn.Linear(2, 1)
    return TorchEstimator(
        num_proc=2,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=torch.nn.MSELoss(),
        feature_cols=["features"],
        label_cols=["y"],
        batch_size=8,
        random_seed=1,
        partitions_per_process=2,
        verbose=0,
        **more,
    )


def test_pytorch_trains_validates_predicts_and_goes_on(line: Any, tmp_path: Path) -> None:
    from horovod.spark.torch import TorchModel

    def squared(outputs: Any, labels: Any) -> Any:
        # As the loss has it, which broadcast [n] and [n, 1] would not give.
        return (outputs - labels).square().mean()

    store = Store.create(tmp_path)
    estimator = linear(store=store, epochs=3, validation="held", run_id="line", metrics=[[squared]])
    model = estimator.fit(line)
    history = model.getHistory()
    assert [entry["epoch"] for entry in history] == [0, 1, 2]
    losses = [entry["validation"]["loss"] for entry in history]
    assert losses[2] < losses[0]
    for entry in history:
        for part in (entry["train"], entry["validation"]):
            assert part["all_metrics"] == {"squared": pytest.approx(part["loss"])}
    assert model.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.1)
    assert list(tmp_path.glob("intermediate*")) == []

    more = linear(store=store, epochs=10, validation="held", run_id="line").fit(line)
    assert [entry["epoch"] for entry in more.getHistory()] == list(range(10))
    assert more.getHistory()[:3] == history
    assert near(more.transform(line).collect()) < 0.05
    assert more.transform(line).schema["y__output"].dataType.typeName() == "float"
    more.save(f"{tmp_path}/saved")
    saved = TorchModel.load(f"{tmp_path}/saved")
    assert saved.getHistory() == more.getHistory()
    assert near(saved.transform(line).collect()) < 0.05
    with pytest.raises(ValueError, match="has columns"):
        more.transform(more.transform(line))


def test_a_pipeline_is_fit_with_maps_of_parameters_and_saved(line: Any, tmp_path: Path) -> None:
    from pyspark.ml import Pipeline, PipelineModel

    estimator = linear(store=Store.create(tmp_path))
    pipeline = Pipeline(stages=[estimator])
    pipeline.save(f"{tmp_path}/pipeline")
    (loaded,) = Pipeline.load(f"{tmp_path}/pipeline").getStages()
    assert (loaded.uid, loaded.getBatchSize()) == (estimator.uid, 8)
    assert loaded.getStore() is None

    maps = [{estimator.epochs: 1}, {estimator.epochs: 2, estimator.batch_size: 16}]
    once, twice = pipeline.fit(line, maps)
    assert [len(model.stages[0].getHistory()) for model in (once, twice)] == [1, 2]
    twice.stages[0].setOutputCols(["guess"])
    twice.save(f"{tmp_path}/model")
    again = PipelineModel.load(f"{tmp_path}/model")
    # The parameters of another stage change nothing, such as the model before its training.
    kept = again.stages[0].transform(line, {estimator.model: None}).collect()
    assert near(kept, "guess") == near(twice.transform(line).collect(), "guess")


def test_pytorch_trains_on_parquet_with_weights_and_adds_up_gradients(
    spark: Any, tmp_path: Path
) -> None:
    rows = [([float(n % 7) / 7, 1.0], float(n % 7), float(n % 2)) for n in range(200)]
    frame = spark.createDataFrame(rows, ["features", "y", "weight"])
    frame.write.parquet(f"{tmp_path}/intermediate_train_data")
    store = Store.create(tmp_path, save_runs=False)
    # The last step of an epoch has one batch, the others three.
    model = linear(
        store=store,
        sample_weight_col="weight",
        epochs=2,
        backward_passes_per_step=3,
        train_steps_per_epoch=10,
    ).fit_on_parquet()
    assert len(model.getHistory()) == 2
    assert (tmp_path / "intermediate_train_data").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"label_cols": ["q"]}, "Label column q does not exist"),
        ({"validation": 2.0}, "must be in the range"),
        ({"loss": None}, "Loss parameter is required"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_before_anything_runs(
    line: Any, tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    estimator = linear(store=Store.create(tmp_path))
    for name, value in given.items():
        estimator.setParams(**{name: value})
    with pytest.raises(ValueError, match=says):
        estimator.fit(line)


def test_an_error_in_a_rank_names_it_and_leaves_no_data(line: Any, tmp_path: Path) -> None:
    def bad(*_: Any) -> float:
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match=r"(?s)rank \d .*planted"):
        linear(store=Store.create(tmp_path), train_minibatch_fn=bad).fit(line)
    assert list(tmp_path.glob("intermediate*")) == []


def test_keras_trains_validates_predicts_and_goes_on(
    line: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    from horovod.spark.keras import KerasEstimator

    def squared(labels: Any, outputs: Any) -> Any:
        return keras.ops.mean(keras.ops.square(labels - outputs))

    def estimator(epochs: int) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        return KerasEstimator(
            num_proc=2,
            store=Store.create(tmp_path),
            model=model,
            optimizer=keras.optimizers.SGD(0.2),
            loss="mse",
            metrics=[squared],
            feature_cols=["features"],
            label_cols=["y"],
            validation=0.25,
            batch_size=8,
            partitions_per_process=2,
            epochs=epochs,
            run_id="line",
            verbose=0,
        )

    model = estimator(2).fit(line)
    assert set(model.getHistory()) == {"loss", "squared", "val_loss", "val_squared"}
    assert len(model.getHistory()["loss"]) == 2
    assert model.getHistory()["squared"] == pytest.approx(model.getHistory()["loss"])
    more = estimator(8).fit(line)
    assert more.getHistory()["loss"][:2] == pytest.approx(model.getHistory()["loss"])
    assert len(more.getHistory()["loss"]) == 8
    assert near(more.transform(line).collect()) < 0.05


def test_lightning_trains_validates_predicts_and_goes_on(line: Any, tmp_path: Path) -> None:
    needs.package("lightning")
    import lightning
    import torch

    from horovod.spark.lightning import TorchEstimator

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, features: Any) -> Any:
            return self.layer(features)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = torch.nn.functional.mse_loss(self(batch["features"])[:, 0], batch["y"])
            self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            loss = torch.nn.functional.mse_loss(self(batch["features"])[:, 0], batch["y"])
            self.log("val_loss", loss, sync_dist=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def estimator(epochs: int) -> Any:
        torch.manual_seed(1)
        return TorchEstimator(
            num_proc=2,
            store=Store.create(tmp_path),
            model=Line(),
            feature_cols=["features"],
            label_cols=["y"],
            validation=0.25,
            batch_size=8,
            partitions_per_process=2,
            epochs=epochs,
            run_id="line",
            random_seed=1,
        )

    model = estimator(2).fit(line)
    assert [entry["epoch"] for entry in model.getHistory()] == [0, 1]
    assert set(model.getHistory()[0]["validation"]) == {"val_loss"}
    more = estimator(8).fit(line)
    assert [entry["epoch"] for entry in more.getHistory()] == list(range(8))
    assert more.getHistory()[:2] == model.getHistory()
    assert near(more.transform(line).collect()) < 0.1
