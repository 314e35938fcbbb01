"""Mixed precision: an infinity on one rank, bfloat16, and gradients that the script clips."""

from __future__ import annotations

import torch

import sirtaki.torch as hvd


def build() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1).cuda()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    return model, optimizer


def same_on_all_ranks(model: torch.nn.Linear) -> None:
    for name, parameter in model.named_parameters():
        assert bool(parameter.isfinite().all()), name
        torch.testing.assert_close(hvd.broadcast(parameter.data, 0), parameter.data)


def check_scaler_with_an_infinity() -> None:
    """All ranks leave out the step in which one of them overflows, and halve their scale."""
    model, optimizer = build()
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0, growth_interval=1000)
    for step in range(6):
        before = model.weight.detach().clone()
        factor = float("inf") if step == 3 and hvd.rank() == hvd.size() - 1 else 1.0
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(torch.ones(4, 16, device="cuda")).float().mean() - 1) ** 2 * factor
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        assert bool((model.weight == before).all()) == (step == 3), step
    assert scaler.get_scale() == 128.0, scaler.get_scale()
    same_on_all_ranks(model)


def check_bfloat16() -> None:
    model, optimizer = build()
    model.bfloat16()
    for step in range(4):
        optimizer.zero_grad()
        inputs = torch.full((4, 16), hvd.rank() + 0.5 * step, device="cuda", dtype=torch.bfloat16)
        model(inputs).float().square().mean().backward()
        optimizer.step()
    same_on_all_ranks(model)


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    for check in (check_scaler_with_an_infinity, check_bfloat16):
        check()
        if hvd.rank() == 0:
            print(f"{check.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
