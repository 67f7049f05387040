"""Tasks as an operator might write them, two of which ask for a GPU: `celery … worker --include …gpu_tasks`."""

from __future__ import annotations

# pyright: reportUntypedFunctionDecorator=false
from celery import shared_task


@shared_task(name="mine.start_cuda")
def start_cuda() -> None:
    import torch

    torch.cuda.init()


@shared_task(name="mine.move_a_tensor")
def move_a_tensor() -> float:
    import torch

    return float(torch.ones(2).cuda().sum())


@shared_task(name="mine.stay_on_the_cpu")
def stay_on_the_cpu() -> float:
    import torch

    torch.manual_seed(0)
    return float(torch.ones(2).sum()) if not torch.cuda.is_available() else -1.0
