"""Learns word vectors whose gradients are sparse: only the rows that a batch used are sent.

    horovodrun -np 2 python examples/pytorch_sparse_embedding.py
    horovodrun -np 2 python examples/pytorch_sparse_embedding.py --sparse-as-dense

An embedding made with `sparse=True` has gradients of a few rows. They are gathered and added up,
which sends less than the whole table, unless the batches use much of it: then `sparse_as_dense`
is faster.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd


class BagOfWords(nn.Module):
    """Says from the mean of its words' vectors which of two classes a text belongs to."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(words, width, mode="mean", sparse=True)
        self.output = nn.Linear(width, 2)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        return self.output(self.vectors(texts))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=20_000, help="size of the vocabulary")
    parser.add_argument("--width", type=int, default=32, help="length of a word's vector")
    parser.add_argument("--texts", type=int, default=64, help="texts a step and process")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr", type=float, default=0.3, help="learning rate")
    parser.add_argument("--sparse-as-dense", action="store_true", help="send the whole table")
    return parser.parse_args()


def make_texts(count: int, words: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return texts of eight words, and their classes: whether most words are even numbers."""
    labels = torch.randint(2, (count,), generator=generator)
    # Few words are frequent and many are rare, as in a language.
    ranks = torch.rand(count, 8, generator=generator) ** 3 * (words // 2)
    odd = torch.rand(count, 8, generator=generator) < 0.2
    texts = 2 * ranks.long() + (odd ^ (labels == 0)[:, None]).long()
    return texts, labels


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    # PyTorch wants to be told whether to check every sparse tensor, which takes time.
    torch.sparse.check_sparse_tensor_invariants.disable()
    # Other texts on each process; the model comes from the first.
    generator = torch.Generator().manual_seed(hvd.rank())
    model = BagOfWords(args.words, args.width)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adagrad(model.parameters(), lr=args.lr),
        named_parameters=model.named_parameters(),
        sparse_as_dense=args.sparse_as_dense,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    rows = 0
    for step in range(args.steps):
        texts, labels = make_texts(args.texts, args.words, generator)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(texts), labels)
        loss.backward()
        optimizer.step()
        rows += len(texts.unique())
        if (step + 1) % 50 == 0:
            mean = hvd.allreduce(loss.detach(), name="loss").item()
            say(f"step {step + 1}: loss {mean:.4f}")

    texts, labels = make_texts(1000, args.words, generator)
    hits = (model(texts).argmax(1) == labels).float().mean()
    correct = hvd.allreduce(hits, name="hits").item()
    sent = args.words if args.sparse_as_dense else rows / args.steps
    say(f"Accuracy: {correct:.1%}; rows a process gives a step: {sent:.0f} of {args.words}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
