"""The names of Horovod's elastic training, see `api_names`."""

from __future__ import annotations

from tests.single.repository.api_names import SINGLE, Group

GROUPS = [
    Group(
        "Elastic training",
        "horovod.torch.elastic",
        "sirtaki.torch.elastic",
        f"{SINGLE}/torch/test_elastic.py",
        """TorchState""",
    ),
    Group(
        "Samples of elastic training",
        "horovod.torch.elastic",
        "sirtaki.torch.elastic",
        f"{SINGLE}/torch/test_elastic_sampler.py",
        """ElasticSampler(dataset, shuffle=True, seed=0)
        ElasticSampler.set_epoch(epoch)
        ElasticSampler.record_batch(batch_idx, batch_size)
        ElasticSampler.record_indices(indices)
        ElasticSampler.get_indices(batch_idx, batch_size)
        ElasticSampler.load_state_dict(state_dict)
        ElasticSampler.state_dict()""",
    ),
    Group(
        "Elastic training, below the top level",
        "horovod.torch.elastic",
        "sirtaki.torch.elastic",
        f"{SINGLE}/elastic/test_run.py",
        """run_fn(func, reset)
        ObjectState
        ObjectState.register_reset_callbacks(callbacks)
        ObjectState.on_hosts_updated(timestamp, update_res)
        ObjectState.commit()
        ObjectState.check_host_updates()
        ObjectState.save()
        ObjectState.restore()""",
    ),
]
