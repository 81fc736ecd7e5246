"""JAX: jitted functions, whose kernels XLA generates or takes from NVIDIA's libraries."""

# ruff: noqa: ARG002 - each program takes both arrays
from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tools.fuzz_operators.array_programs import ArrayPrograms, Program, functions


class JaxPrograms(ArrayPrograms):
    """Programs of JAX, each compiled once for a type."""

    types = ("float32", "bfloat16")

    def load(self) -> Mapping[str, Program]:
        """Import JAX; return the programs."""
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others share the GPU
        written = _Programs()
        return {name: getattr(written, name) for name in self.listed()}

    def listed(self) -> list[str]:
        """Return the programs' names."""
        return functions(_Programs)

    def array(self, values: Any) -> Any:
        """Return numpy's values on the GPU."""
        return import_module("jax.numpy").asarray(values)

    def compiled(self, program: Program) -> Program:
        """Return a program as XLA compiles it."""
        made: Program = import_module("jax").jit(program)

        def run(x: Any, k: Any) -> Any:
            return import_module("jax").block_until_ready(made(x, k))

        return run

    def wait(self) -> None:
        """Wait for the GPU."""
        import torch

        torch.cuda.synchronize()


class _Programs:
    """Each method is a program."""

    def __init__(self) -> None:
        self._jax, self._jnp = import_module("jax"), import_module("jax.numpy")
        self._lax = self._jax.lax

    def reductions(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        return [x.sum(), x.sum(0), x.max(1), jnp.argmax(x, 1), k.sum(), jnp.std(x, 1), k.prod(0)]

    def sorts(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        return [jnp.sort(x), jnp.argsort(k, axis=0), jnp.sort(x.ravel()), *self._lax.top_k(x, 9)]

    def scans(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        return [jnp.cumsum(x, 1), jnp.cumsum(k, 0), self._lax.cummax(x), jnp.cumprod(x[:, :50], 1)]

    def associative_scan(self, x: Any, k: Any) -> Any:
        return self._lax.associative_scan(self._jnp.maximum, x, axis=1)

    def scan(self, x: Any, k: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            return carry * 0.5 + row, carry.sum()

        return list(self._lax.scan(step, x[0], x[:40]))

    def while_loop(self, x: Any, k: Any) -> Any:
        return self._lax.fori_loop(0, 20, lambda _, each: self._jnp.sin(each) + x, x)

    def elementwise(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        return [jnp.tanh(x) * x + k, jnp.where(k > 3, x, -x), jnp.exp(x).astype(jnp.int32), k << 2]

    def products(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        return [x @ x.T, jnp.einsum("ij,kj->ik", x[:64], x[:32]), x[:, :64].T @ x, k @ k.T]

    def batched_products(self, x: Any, k: Any) -> Any:
        made = x[:512, :1024].reshape(8, 64, 1024)
        return self._jnp.einsum("bij,bkj->bik", made, made)

    def convolutions(self, x: Any, k: Any) -> Any:
        image = x[:512, :1024].reshape(8, 16, 64, 64)
        weights = x[:16, :144].reshape(16, 16, 3, 3)
        conv = self._lax.conv_general_dilated
        return [conv(image, weights, (1, 1), "SAME"), conv(image, weights, (2, 2), "VALID")]

    def fourier(self, x: Any, k: Any) -> Any:
        fft, wide = self._jnp.fft, x.astype(self._jnp.float32)
        return [fft.fft(wide), fft.rfft2(wide), fft.irfft(fft.rfft(wide[:, :1030]))]

    def cholesky(self, x: Any, k: Any) -> Any:
        jnp, linalg = self._jnp, self._jax.scipy.linalg
        square = x[:200, :200].astype(jnp.float32)
        made = jnp.linalg.cholesky(square @ square.T + 200 * jnp.eye(200))
        return [made, linalg.solve_triangular(made, square, lower=True)]

    def decompositions(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        square = x[:100, :100].astype(jnp.float32)
        return [*jnp.linalg.qr(square), *jnp.linalg.eigh(square + square.T), jnp.linalg.inv(square)]

    def singular_values(self, x: Any, k: Any) -> Any:
        return self._jnp.linalg.svd(x[:100, :80].astype(self._jnp.float32), compute_uv=False)

    def attention(self, x: Any, k: Any) -> Any:
        made = x[:512, :1024].reshape(4, 256, 8, 64)
        return self._jax.nn.dot_product_attention(made, made, made, is_causal=True)

    def softmax_and_norm(self, x: Any, k: Any) -> Any:
        jax, jnp = self._jax, self._jnp
        centred = (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)
        return [jax.nn.softmax(x), jax.nn.log_softmax(x, 0), centred, jax.nn.gelu(x)]

    def gradient(self, x: Any, k: Any) -> Any:
        def loss(weights: Any) -> Any:
            return (self._jax.nn.relu(x[:100] @ weights) ** 2).mean()

        return self._jax.grad(loss)(x[:64].T)

    def gathers(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        return [x[k[:, 0]], jnp.take_along_axis(x, k, 1), jnp.roll(x, 3, 1), x[::-1], x.T]

    def scatters(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        counts = jnp.zeros(100, jnp.int32).at[k.ravel()].add(1)
        most = jnp.zeros(100, jnp.float32).at[k.ravel()].max(x.ravel().astype(jnp.float32))
        return [counts, most, self._jax.ops.segment_max(x[:, 0], k[:, 0], 100)]

    def random_numbers(self, x: Any, k: Any) -> Any:
        random = self._jax.random
        key = random.key(3)
        made = [random.normal(key, (9999,)), random.uniform(key, (9999,))]
        return [*made, random.permutation(key, 9999), random.gamma(key, 2.0, (999,))]

    def histograms(self, x: Any, k: Any) -> Any:
        jnp = self._jnp
        return [jnp.bincount(k.ravel(), length=100), jnp.searchsorted(jnp.sort(x[0]), x[1])]

    def windows(self, x: Any, k: Any) -> Any:
        reduce = self._lax.reduce_window
        return [reduce(x, -self._jnp.inf, self._lax.max, (3, 3), (2, 2), "SAME"), x[:, ::3] * 2]

    def vectorised(self, x: Any, k: Any) -> Any:
        return self._jax.vmap(lambda row, at: row[at[0]] * row + at.sum())(x, k)
