"""Every public name of Horovod 0.28.1 for TensorFlow and Keras that this version answers for."""

# ruff: noqa: E501, a signature stands in one line
from __future__ import annotations

from tests.single.repository.api_names import LIFECYCLE, Group

RANKS = "tests/frameworks/tensorflow/ranks"
KERAS_RANKS = "tests/frameworks/keras/ranks"
PS = "process_set=global_process_set"
SCALES = "prescale_factor=1.0, postscale_factor=1.0"
DEVICES = "device_dense='', device_sparse=''"
COMPRESSION = "compression=Compression.none"

TENSORFLOW = "horovod.tensorflow"

VALUE_OPERATIONS = """allgather(value, name=None)
broadcast(value, root_rank, name=None)
reducescatter(value, name=None, op=Average)"""

MODELS = f"""broadcast_global_variables(root_rank)
load_model(filepath, custom_optimizers=None, custom_objects=None, {COMPRESSION}, legacy_opts=False)"""

CALLBACKS = """BroadcastGlobalVariablesCallback(root_rank, device='', local_variables=None)
MetricAverageCallback(device='')
LearningRateScheduleCallback(initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True, steps_per_epoch=None)
LearningRateWarmupCallback(initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0)
BestModelCheckpoint"""

GROUPS = [
    Group(
        "TensorFlow: lifecycle",
        TENSORFLOW,
        "sirtaki.core.facade",
        "tests/single/test_lifecycle.py",
        LIFECYCLE + "\nis_homogeneous()",
    ),
    Group(
        "TensorFlow: values in graphs",
        TENSORFLOW,
        "sirtaki.tensorflow.ops.graph_values",
        f"{RANKS}/test_graphs.py",
        """size_op(process_set_id=0, name=None)
        rank_op(name=None)
        local_size_op(name=None)
        local_rank_op(name=None)
        process_set_included_op(process_set_id=0, name=None)""",
    ),
    Group(
        "TensorFlow: reductions",
        TENSORFLOW,
        "sirtaki.tensorflow.ops.collectives",
        "tests/frameworks/cases.py",
        f"""allreduce(tensor, average=None, {DEVICES}, {COMPRESSION}, op=None, {SCALES}, name=None, {PS}, ignore_name_scope=False)
        grouped_allreduce(tensors, average=None, {DEVICES}, {COMPRESSION}, op=None, {SCALES}, {PS}, ignore_name_scope=False, name=None)
        reducescatter(tensor, device_dense='', {COMPRESSION}, op=Average, name=None, {PS}, ignore_name_scope=False, {SCALES})""",
    ),
    Group(
        "TensorFlow: reductions of groups",
        TENSORFLOW,
        "sirtaki.tensorflow.ops.collectives",
        f"{RANKS}/test_training.py",
        f"grouped_reducescatter(tensors, device_dense='', {COMPRESSION}, op=Average, {PS}, {SCALES})",
    ),
    Group(
        "TensorFlow: the other collectives",
        TENSORFLOW,
        "sirtaki.tensorflow.ops.dense",
        "tests/frameworks/cases.py",
        f"""allgather(tensor, name=None, ignore_name_scope=False, {PS})
        grouped_allgather(tensors, name=None, ignore_name_scope=False, {PS})
        broadcast(tensor, root_rank, name=None, ignore_name_scope=False, {PS})
        alltoall(tensor, splits=None, name=None, ignore_name_scope=False, {PS})""",
    ),
    Group(
        "TensorFlow: uneven data",
        TENSORFLOW,
        "sirtaki.tensorflow.ops.dense",
        f"{RANKS}/test_training.py",
        "join()",
    ),
    Group(
        "TensorFlow: variables and objects",
        TENSORFLOW,
        "sirtaki.tensorflow.functions",
        f"{RANKS}/test_training.py",
        f"""broadcast_(variables, root_rank, name=None, {PS})
        broadcast_variables(variables, root_rank, {PS}, inplace=False)
        broadcast_object(obj=None, root_rank=0, session=None, name=None, {PS})
        broadcast_object_fn(root_rank=0, session=None, name=None, {PS})
        allgather_object(obj, session=None, name=None, {PS})""",
    ),
    Group(
        "TensorFlow: scripts of version 1",
        TENSORFLOW,
        "sirtaki.tensorflow.v1",
        f"{RANKS}/test_training.py",
        """broadcast_global_variables(root_rank)
        BroadcastGlobalVariablesHook(root_rank, device='')""",
    ),
    Group(
        "TensorFlow: training",
        TENSORFLOW,
        TENSORFLOW,
        f"{RANKS}/test_training.py",
        f"""DistributedOptimizer(optimizer, name=None, use_locking=False, {DEVICES}, {COMPRESSION}, sparse_as_dense=False, backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None, {PS}, scale_local_gradients=True)
        DistributedGradientTape(gradtape, {DEVICES}, {COMPRESSION}, sparse_as_dense=False, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, {PS}, scale_local_gradients=True)
        PartialDistributedGradientTape
        Compression""",
    ),
    Group(
        "TensorFlow: batch normalisation",
        TENSORFLOW,
        "sirtaki.keras.sync_batch_norm",
        f"{KERAS_RANKS}/test_sync_batch_norm.py",
        "SyncBatchNormalization(fused=False, **kwargs)",
    ),
    Group(
        "tf.data service",
        "horovod.tensorflow.data.compute_service",
        "sirtaki.tensorflow.data.compute_service",
        "tests/frameworks/tensorflow/test_data_service.py",
        """TfDataServiceConfig(dispatchers, workers_per_dispatcher, dispatcher_side, addresses, key, timeout=60)
        tf_data_service(compute_config, rank)
        send_to_data_service(dataset, compute_config, rank, size=None, processing_mode='distributed_epoch', reuse_dataset=False, round_robin=False)""",
    ),
]

for module in ("horovod.tensorflow.keras", "horovod.keras"):
    GROUPS += [
        Group(
            f"{module}: values",
            module,
            "sirtaki.keras",
            f"{KERAS_RANKS}/test_values.py",
            VALUE_OPERATIONS,
        ),
        Group(
            f"{module}: models",
            module,
            "sirtaki.keras",
            f"{KERAS_RANKS}/test_callbacks.py",
            MODELS,
        ),
        Group(
            f"{module}: optimizers",
            module,
            "sirtaki.keras.optimizer",
            f"{KERAS_RANKS}/test_optimizer.py",
            f"""DistributedOptimizer(optimizer, name=None, {DEVICES}, {COMPRESSION}, sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, average_aggregated_gradients=False, num_groups=0, groups=None, {PS}, scale_local_gradients=True)
            PartialDistributedOptimizer""",
        ),
        Group(
            f"{module}: callbacks",
            f"{module}.callbacks",
            "sirtaki.keras.callbacks",
            f"{KERAS_RANKS}/test_callbacks.py",
            CALLBACKS,
        ),
    ]
