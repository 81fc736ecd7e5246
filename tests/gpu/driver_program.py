"""Launches kernels that Triton does not: torch's own, torch.compile's, a graph's."""

import hashlib
import sys

import torch


def fingerprint(*tensors: torch.Tensor) -> str:
    digest = hashlib.sha256()
    for each in tensors:
        digest.update(each.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def own() -> str:
    """Torch's own kernels."""
    x = torch.randn(512, 1000, device="cuda")
    made = x.softmax(-1), torch.layer_norm(x, (1000,)), torch.cumsum(x, 1), x * 3 + 1
    return fingerprint(*made)


def reduced() -> str:
    """Torch's reductions: they leave one uniform register, and are refused none."""
    made = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.randn(4096, 768, device="cuda").to(dtype)
        made += [x.sum(), x.sum(0), x.sum((0, 1)), x.amax(1), x.argmax(1), x.norm(), x.std(1)]
        made += [x.pow(2).mean(-1), x.prod(1), x.cumsum(1), torch.linalg.vector_norm(x, 3, 1)]
    x = torch.rand(1000, 1000, device="cuda")
    made += [torch.bernoulli(x), torch.nn.functional.dropout(x), torch.multinomial(x, 5)]
    made += [x.sort(1).values, x.topk(7, 1).indices, x.kthvalue(3, 1).values, x.unique()]
    return fingerprint(*(each for each in made))


def compiled() -> str:
    """What torch.compile generates, launched by a launcher of its own."""
    made = torch.compile(lambda x: (x * 2 + x.sin()).softmax(-1))
    x = torch.randn(256, 5000, device="cuda")
    return fingerprint(made(x), made(x))


def graph() -> str:
    """A kernel that a graph replays."""
    x, y = torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    torch.mul(x, 3, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(x, 3, out=y)
    for _ in range(3):
        y.zero_()
        graph.replay()
    return fingerprint(y)


if __name__ == "__main__":
    torch.manual_seed(0)
    print({"own": own, "reduced": reduced, "compiled": compiled, "graph": graph}[sys.argv[1]]())
